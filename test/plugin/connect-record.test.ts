import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmod, chown, lstat, mkdir, readFile, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { readStartTime } from '../../scripts/lib/processes.mjs'
import { toTrustId } from '../../scripts/lib/trust.mjs'
import { useServer } from './connect-server.ts'

describe('the record of connections', () => {
  const { app, agents, withMachine } = useServer()

  test(
    'an agent stays trusted while another project is it, and when the listener had recorded it before',
    withMachine(async ({ machine, connect }) => {
      const second = join(machine.root, 'second')
      await mkdir(second)
      const file = join(machine.configFolder, 'trusted.json')
      const trusted = async () => JSON.parse(await readFile(file, 'utf8')).trusted.sort()
      const [backend, frontend] = (['backend', 'frontend'] as const).map((name) =>
        toTrustId({ base: app.url, token: agents[name].token }),
      )
      await connect()
      await connect({ folder: second, as: 'frontend' })
      assert.deepEqual(await trusted(), [backend, frontend].sort())
      await machine.run(['disconnect'])
      assert.deepEqual(await trusted(), [frontend])
      await connect({ as: 'frontend' })
      await machine.run(['disconnect'])
      assert.deepEqual(await trusted(), [frontend])
      await machine.run(['disconnect'], { folder: second })
      await assert.rejects(trusted(), { code: 'ENOENT' })
      await mkdir(machine.configFolder, { recursive: true, mode: 0o700 })
      await writeFile(file, JSON.stringify({ trusted: [backend] }), { mode: 0o600 })
      await connect()
      await machine.run(['disconnect'])
      assert.deepEqual(await trusted(), [backend])
    }),
  )

  test(
    'the token that another took the place of is no longer trusted',
    withMachine(async ({ machine, connect }) => {
      await connect()
      await connect({ as: 'frontend' }, '--replace')
      const { trusted } = JSON.parse(await readFile(join(machine.configFolder, 'trusted.json'), 'utf8'))
      assert.deepEqual(trusted, [toTrustId({ base: app.url, token: agents.frontend.token })])
    }),
  )

  test(
    'rules that --allow has written stay when the folder is connected again without it, until disconnect',
    withMachine(async ({ machine, connect }) => {
      const before = await machine.listFiles()
      await connect({}, '--allow')
      const file = join(machine.project, '.claude/settings.local.json')
      const rules = await readFile(file, 'utf8')
      assert.equal((await connect()).code, 0)
      assert.equal(await readFile(file, 'utf8'), rules)
      await machine.run(['disconnect'])
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  test(
    'two projects that connect at the same moment are both known afterwards',
    withMachine(async ({ machine, connect }) => {
      const folders = await Promise.all(
        ['a', 'b', 'c'].map(async (name) => {
          await mkdir(join(machine.root, name))
          return join(machine.root, name)
        }),
      )
      const connected = await Promise.all(folders.map((folder) => connect({ folder })))
      assert.deepEqual(
        connected.map(({ code }) => code),
        [0, 0, 0],
      )
      const undone = await Promise.all(folders.map((folder) => machine.run(['disconnect'], { folder })))
      assert.deepEqual(
        undone.map(({ code }) => code),
        [0, 0, 0],
      )
      assert.deepEqual(await machine.listFiles(), {})
    }),
  )

  test(
    'a folder of the user that is none is one sentence, and nothing is half done',
    withMachine(async ({ machine, connect }) => {
      await mkdir(join(machine.root, '.config'))
      await writeFile(machine.configFolder, 'in the way')
      await machine.write('.mcp.json', '{}')
      const before = await machine.listFiles()
      const { code, json } = await connect({}, '--json')
      assert.deepEqual([code, json.error.code], [1, 'system'])
      assert.match(json.error.message, /EEXIST/)
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  test(
    'waits for another connect that is at work',
    withMachine(async ({ machine, connect }) => {
      await mkdir(machine.configFolder, { recursive: true })
      const lock = join(machine.configFolder, 'connections.lock')
      await writeFile(lock, '')
      const connecting = connect()
      await new Promise((resolve) => setTimeout(resolve, 1_500))
      assert.ok(!('/project/.mcp.json' in (await machine.listFiles())))
      await rm(lock)
      assert.equal((await connecting).code, 0)
    }),
  )

  test(
    'a lock that a killed connect has left behind holds nobody for ever',
    withMachine(async ({ machine, connect }) => {
      await mkdir(machine.configFolder, { recursive: true })
      const lock = join(machine.configFolder, 'connections.lock')
      await writeFile(lock, '')
      await utimes(lock, 0, 0)
      assert.equal((await connect()).code, 0)
      await assert.rejects(stat(lock), { code: 'ENOENT' })
    }),
  )

  test(
    'a record of connections that is damaged is named, and nothing is changed',
    withMachine(async ({ machine, connect }) => {
      await connect()
      const record = join(machine.configFolder, 'connections.json')
      await rename(record, `${record}.old`)
      await writeFile(record, '{')
      const before = await machine.listFiles()
      const { code, stderr } = await machine.run(['disconnect'])
      assert.equal(code, 1)
      assert.match(stderr, /connections\.json is damaged\. Nothing was changed\./)
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  test(
    'holds no token in clear',
    withMachine(async ({ machine, connect }) => {
      assert.equal((await connect()).code, 0)
      const record = await readFile(join(machine.configFolder, 'connections.json'), 'utf8')
      assert.doesNotMatch(record, /pc_/)
    }),
  )

  test(
    'what a killed run has left behind goes with the next one, and what may be at work stays',
    withMachine(async ({ machine, connect }) => {
      await mkdir(machine.configFolder, { recursive: true, mode: 0o700 })
      const left = [
        join(machine.configFolder, '.connections.json.0123456789ab.tmp'),
        join(machine.configFolder, 'trusted.json.4711.tmp'),
        join(machine.project, '.patchcord-0123456789ab.tmp'),
      ]
      const kept = [join(machine.configFolder, 'mine.tmp'), join(machine.configFolder, 'trusted.json.4712.tmp')]
      for (const file of [...left, ...kept]) await writeFile(file, agents.backend.token)
      for (const file of [...left, join(machine.configFolder, 'mine.tmp')]) await utimes(file, 1, 1)
      // Under another HOME, the same project is written to under another lock.
      for (const [name, started] of [
        ['living', readStartTime(process.pid)],
        ['ended', 'once'],
      ] as const) {
        const folder = join(machine.project, `.patchcord-00000000000${name === 'ended' ? 0 : 1}.tmp`)
        await mkdir(folder)
        const owner = JSON.stringify({ pid: process.pid, started, host: hostname() })
        await writeFile(join(folder, '.gitignore'), `#${owner}\n*\n`)
        await writeFile(join(folder, 'new'), agents.backend.token)
        ;(name === 'ended' ? left : kept).push(folder)
      }
      assert.equal((await connect()).code, 0)
      for (const file of left) await assert.rejects(stat(file), { code: 'ENOENT' })
      for (const file of kept) await stat(file)
    }),
  )

  test(
    'the lock of an owner that has ended is taken at once, also one from a clock of the future',
    withMachine(async ({ machine, connect }) => {
      const lock = join(machine.configFolder, 'connections.lock')
      const take = async (text: string, at: number) => {
        await mkdir(machine.configFolder, { recursive: true, mode: 0o700 })
        await writeFile(lock, text)
        await utimes(lock, at, at)
        const { code, stderr } = await connect()
        assert.deepEqual([code, stderr], [0, ''])
        await assert.rejects(stat(lock), { code: 'ENOENT' })
      }
      const now = Date.now() / 1000
      // This process lives, but it has not started when the owner did.
      await take(JSON.stringify({ pid: process.pid, started: 'once', host: hostname() }), now)
      await take('', now + 86_400)
    }),
  )

  test(
    'says once that it waits, and takes no lock away from an owner that lives',
    withMachine(async ({ machine, connect }) => {
      await mkdir(machine.configFolder, { recursive: true, mode: 0o700 })
      const lock = join(machine.configFolder, 'connections.lock')
      const owner = { pid: process.pid, started: readStartTime(process.pid), host: hostname() }
      await writeFile(lock, JSON.stringify(owner))
      await utimes(lock, 1, 1)
      const connecting = connect()
      await new Promise((resolve) => setTimeout(resolve, 3_000))
      assert.ok(!('/project/.mcp.json' in (await machine.listFiles())))
      await rm(lock)
      const { code, stderr } = await connecting
      assert.equal(code, 0)
      assert.match(stderr, /^Waiting for another patchcord that is at work \(.*connections\.lock\)\.\n$/)
    }),
  )

  for (const [what, make] of [
    ['a symlink that leads nowhere', (lock: string) => symlink('nowhere', lock)],
    ['a symlink to a file', (lock: string) => symlink(fileURLToPath(import.meta.url), lock)],
    ['a named pipe', async (lock: string) => void execFileSync('mkfifo', [lock])],
    ['a folder', (lock: string) => mkdir(lock)],
  ] as const) {
    test(
      `a lock that is none is refused at once: ${what}`,
      withMachine(async ({ machine, connect }) => {
        await mkdir(machine.configFolder, { recursive: true, mode: 0o700 })
        const lock = join(machine.configFolder, 'connections.lock')
        await make(lock)
        const { code, json } = await connect({}, '--json')
        assert.deepEqual([code, json.error.code], [1, 'unsafe_file'])
        assert.equal(json.error.message, `${lock} is not a file. Nothing was changed.`)
        await lstat(lock)
        assert.ok(!('/project/.mcp.json' in (await machine.listFiles())))
      }),
    )
  }

  test(
    'a disk that is full leaves no lock behind that holds up the next connect',
    withMachine(async ({ machine, connect }) => {
      const patch = join(machine.root, 'patch.mjs')
      const text = `import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
const { open } = fs.promises
fs.promises.open = async (file, ...rest) => {
  const handle = await open(file, ...rest)
  const full = () => Promise.reject(Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' }))
  if (String(file).endsWith('/connections.lock')) handle.writeFile = full
  return handle
}
syncBuiltinESMExports()
`
      await writeFile(patch, text)
      const before = await machine.listFiles()
      const full = await connect({ env: { NODE_OPTIONS: `--import ${pathToFileURL(patch)}` } })
      assert.equal(full.code, 1)
      assert.match(full.stderr, /ENOSPC/)
      assert.deepEqual(await machine.listFiles(), before)
      const { code, stderr } = await connect()
      assert.deepEqual([code, stderr], [0, ''])
    }),
  )

  test(
    'a folder or a record that others can write to is refused in a sentence',
    withMachine(async ({ machine, connect }) => {
      assert.equal((await connect()).code, 0)
      const record = join(machine.configFolder, 'connections.json')
      for (const [path, mode, error] of [
        [machine.configFolder, 0o777, 'unsafe_folder'],
        [record, 0o666, 'unsafe_file'],
      ] as const) {
        const { mode: before } = await stat(path)
        await chmod(path, mode)
        const { code, json } = await machine.run(['disconnect', '--json'])
        assert.deepEqual([code, json.error.code], [1, error])
        assert.match(`${json.error.message} ${json.error.hint}`, /Nothing was changed.*chmod/)
        await chmod(path, before & 0o777)
      }
      if (process.getuid?.() === 0) {
        await chown(record, 12_345, 0)
        assert.equal((await machine.run(['disconnect', '--json'])).json.error.code, 'unsafe_file')
        await chown(record, 0, 0)
      }
      assert.equal((await machine.run(['disconnect'])).code, 0)
    }),
  )

  test(
    'a folder that is connected keeps its token, or the variable that it names, when connect is given none',
    withMachine(async ({ machine, connect }) => {
      const again = (env: Record<string, string> = {}) =>
        machine.run(['connect', '--server', app.url, '--allow', '--json'], { env })
      await connect()
      const text = await machine.read('.mcp.json')
      assert.deepEqual([(await again()).code, await machine.read('.mcp.json')], [0, text])
      assert.match(await machine.read('.claude/settings.local.json'), /mcp__patchcord/)
      await machine.run(['disconnect'])
      // A file that somebody else has written gives no identity.
      await machine.write('.mcp.json', text)
      assert.equal((await again()).json.error.code, 'token_missing')
      await rm(join(machine.project, '.mcp.json'))
      const env = { TEAM_TOKEN: agents.backend.token }
      await machine.run(['connect', '--server', app.url, '--env', 'TEAM_TOKEN'], { env })
      assert.equal((await again(env)).code, 0)
      assert.match(await machine.read('.mcp.json'), /"Bearer \$\{TEAM_TOKEN\}"/)
      assert.equal((await again()).json.error.code, 'token_missing')
    }),
  )
})
