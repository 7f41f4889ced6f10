import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Pidfile, prepareRuntimeFolder } from '../../scripts/lib/pidfile.mjs'
import { isAlive, readStartTime } from '../../scripts/lib/processes.cjs'
import { eventually } from './listener-process.ts'

const BOB = { origin: 'https://pc.example', namespace: 'acme', agent: 'bob' }
const IDENTITY = 'https://pc.example bob@acme'

async function setUp(context: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'patchcord-pid-'))
  context.after(() => rm(folder, { recursive: true, force: true }))
  return { folder, file: join(folder, 'subscribe_acme_bob.pid') }
}

/** A process that lives until the test ends. */
function startOther(context: TestContext): number {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
  context.after(() => child.kill('SIGKILL'))
  return child.pid ?? 0
}

function record(pid: number, startTime = readStartTime(pid) ?? '', identity = IDENTITY): string {
  return `${pid}\n${startTime}\n${identity}\n`
}

test('the first claim writes pid, start time and identity; release removes it', async (context) => {
  const { folder, file } = await setUp(context)
  const pidfile = new Pidfile({ folder, ...BOB })
  assert.equal(pidfile.claim(), null)
  assert.equal(await readFile(file, 'utf8'), record(process.pid))
  pidfile.release()
  assert.deepEqual(await readdir(folder), [])
})

test('a live listener of the same agent is named', async (context) => {
  const { folder, file } = await setUp(context)
  const other = startOther(context)
  await writeFile(file, record(other))
  assert.equal(new Pidfile({ folder, ...BOB }).claim(), other)
  assert.equal(await readFile(file, 'utf8'), record(other))
})

test('a dead pid, a reused pid and a damaged file are stale', async (context) => {
  const { folder, file } = await setUp(context)
  const other = startOther(context)
  for (const text of [
    record(2 ** 30, '1'),
    record(other, '1'),
    '',
    'x',
    '-1\n',
    '0\n',
    '1e3\n',
    `${'9'.repeat(400)}\n`,
  ]) {
    await writeFile(file, text)
    const pidfile = new Pidfile({ folder, ...BOB })
    assert.equal(pidfile.claim(), null, JSON.stringify(text))
    assert.equal(await readFile(file, 'utf8'), record(process.pid))
    pidfile.release()
  }
})

test('EPERM means alive', async (context) => {
  const { folder, file } = await setUp(context)
  await writeFile(file, record(4242, '77'))
  const kill = () => {
    throw Object.assign(new Error('kill EPERM'), { code: 'EPERM' })
  }
  assert.equal(isAlive(4242, kill), true)
  assert.equal(new Pidfile({ folder, ...BOB }, { kill, getStartTime: () => '77' }).claim(), 4242)
  assert.equal(new Pidfile({ folder, ...BOB }, { kill, getStartTime: () => null }).claim(), 4242)
  assert.equal(new Pidfile({ folder, ...BOB }, { kill, getStartTime: () => '78' }).claim(), null)
})

test('only the owner removes the file', async (context) => {
  const { folder, file } = await setUp(context)
  const pidfile = new Pidfile({ folder, ...BOB })
  assert.equal(pidfile.claim(), null)
  const other = startOther(context)
  await writeFile(file, record(other))
  assert.equal(pidfile.check(), other)
  pidfile.release()
  assert.equal(await readFile(file, 'utf8'), record(other))
})

test('a file that was cleaned away is written again', async (context) => {
  const { folder, file } = await setUp(context)
  const pidfile = new Pidfile({ folder, ...BOB })
  pidfile.claim()
  await rm(file)
  assert.equal(pidfile.check(), null)
  assert.equal(await readFile(file, 'utf8'), record(process.pid))
})

test('agents that are called alike on two servers, or by a play of underscores, do not shut each other out', async (context) => {
  const { folder, file } = await setUp(context)
  const other = startOther(context)
  await writeFile(file, record(other, undefined, 'https://elsewhere.example bob@acme'))
  const pidfile = new Pidfile({ folder, ...BOB })
  assert.equal(pidfile.claim(), null)
  const second = (await readdir(folder)).find((name) => name !== 'subscribe_acme_bob.pid') ?? ''
  assert.match(second, /^subscribe_acme_bob_[0-9a-f]{8}\.pid$/)
  await writeFile(join(folder, second), record(other))
  assert.equal(new Pidfile({ folder, ...BOB }).claim(), other, 'the second name counts as well')
})

test('of twenty processes that start at once over a stale file exactly one wins', async (context) => {
  const { folder, file } = await setUp(context)
  await writeFile(file, record(2 ** 30, '1'))
  const module = fileURLToPath(new URL('../../scripts/lib/pidfile.mjs', import.meta.url))
  const source = `
    import { Pidfile } from ${JSON.stringify(module)}
    const pidfile = new Pidfile(${JSON.stringify({ folder, ...BOB })})
    process.stdin.once('data', () => {
      const pid = pidfile.claim()
      process.stdout.write(pid === null ? 'won' : 'lost')
      process.stdin.once('data', () => process.exit())
    })
    process.stdout.write('ready ')`
  const children = Array.from({ length: 20 }, () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: ['pipe', 'pipe', 'inherit'] })
    context.after(() => child.kill('SIGKILL'))
    const one = { child, text: '' }
    child.stdout.on('data', (chunk) => {
      one.text += chunk
    })
    return one
  })
  await eventually(() => children.every((one) => one.text === 'ready '))
  for (const { child } of children) child.stdin.write('go')
  await eventually(() => children.every((one) => one.text !== 'ready '))
  const winners = children.filter((one) => one.text === 'ready won')
  assert.equal(winners.length, 1)
  assert.equal(Number((await readFile(file, 'utf8')).split('\n')[0]), winners[0]?.child.pid)
  assert.deepEqual(await readdir(folder), ['subscribe_acme_bob.pid'])
})

test('the runtime folder is made 0700 and refused when it is a link, open, or no folder', {
  skip: process.platform === 'win32',
}, async (context) => {
  const { folder } = await setUp(context)
  const mine = join(folder, 'patchcord')
  assert.equal(prepareRuntimeFolder([mine]), mine)
  await chmod(mine, 0o750)
  assert.throws(() => prepareRuntimeFolder([mine]), /is open to other users, it must be 0700$/)
  await rm(mine, { recursive: true })
  const target = join(folder, 'target')
  await mkdir(target, { mode: 0o700 })
  await symlink(target, mine)
  assert.throws(() => prepareRuntimeFolder([mine]), /is not a folder$/)
  await rm(mine)
  await writeFile(mine, '')
  assert.throws(() => prepareRuntimeFolder([mine]), /is not a folder$/)
  const fallback = join(folder, 'fallback')
  assert.equal(prepareRuntimeFolder([join(folder, 'missing', 'patchcord'), fallback]), fallback)
})
