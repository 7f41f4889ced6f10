import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ConnectionTarget, connect, type Sql } from '../../server/db/connect.ts'
import { findEmbedded, startEmbedded } from '../../server/db/embedded/index.ts'
import { isAlive } from '../../server/db/embedded/process-info.ts'
import { StartError } from '../../server/errors.ts'
import { getNativeDir } from '../helpers/cluster.ts'

const INDEX = new URL('../../server/db/embedded/index.ts', import.meta.url).href
const LONG_NAME = `a long, "odd" näme that somebody's care has chosen for a folder $HOME %s`
const TIMEOUT_MS = 120_000
const isRoot = process.getuid?.() === 0

let parent: string
/** Its path alone is longer than a socket's path may be. */
let dataDir: string
const lines: string[] = []

function start() {
  return startEmbedded({ dataDir, nativeDir: getNativeDir(), log: (line) => lines.push(line) })
}

async function withSql<T>(target: ConnectionTarget, work: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = connect(target, { max: 1, applicationName: 'test' })
  try {
    return await work(sql)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

/** Without the copy of the binaries that is needed where the installed ones cannot be used. */
function listDataDir(): string[] {
  return readdirSync(dataDir)
    .filter((name) => !name.startsWith('native-'))
    .sort()
}

function postmasterPid(): number {
  return Number(readFileSync(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').split('\n')[0])
}

async function waitUntil(what: string, isDone: () => boolean | Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + TIMEOUT_MS; !(await isDone()); await sleep(20)) {
    assert.ok(Date.now() < deadline, `waited too long until ${what}`)
  }
}

/** A server in a process of its own that starts on the data folder, says "ready", and stays. */
async function startOtherServer() {
  const options = JSON.stringify({ dataDir, nativeDir: getNativeDir() })
  const code = `
    import { startEmbedded } from ${JSON.stringify(INDEX)}
    const embedded = await startEmbedded({ ...${options}, log() {} })
    console.log('ready')
    setInterval(() => {}, 1000)`
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', code], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return { child, ready: once(child.stdout, 'data') }
}

before(async () => {
  parent = await mkdtemp(join(tmpdir(), 'patchcord-embedded-'))
  dataDir = join(parent, LONG_NAME, LONG_NAME)
  // mkdtemp makes folders that only their owner enters, and as root Postgres runs as somebody else.
  await mkdir(join(parent, LONG_NAME), { recursive: true })
  await chmod(parent, 0o711)
})
after(() => rm(parent, { recursive: true, force: true }))

test('the first start makes a database that only its passwords open, by a socket, durable', {
  timeout: TIMEOUT_MS,
}, async () => {
  const embedded = await start()
  try {
    const [row] = await withSql(
      embedded.api,
      (sql) => sql`
      select current_user as name, current_setting('listen_addresses') as addresses, current_setting('fsync') as fsync,
        current_setting('synchronous_commit') as commit, current_setting('server_encoding') as encoding`,
    )
    assert.deepEqual({ ...row }, { name: 'patchcord_api', addresses: '', fsync: 'on', commit: 'on', encoding: 'UTF8' })
    const [admin] = await withSql(
      embedded.admin,
      (sql) => sql`
      select rolname, rolsuper, to_regclass('patchcord.agent_messages') is not null as migrated
      from pg_roles where rolname = current_user`,
    )
    assert.deepEqual({ ...admin }, { rolname: 'postgres', rolsuper: false, migrated: true })
    await assert.rejects(
      withSql({ ...embedded.superuser, password: 'guess' } as ConnectionTarget, (sql) => sql`select 1`),
      {
        code: '28P01',
      },
    )
    await withSql(embedded.admin, (sql) =>
      sql.unsafe('create table public.kept (id int); insert into public.kept values (1)'),
    )
  } finally {
    await embedded.stop()
  }
})

test('every file beside the cluster is for its owner only, and nothing holds the password of initdb', () => {
  for (const name of readdirSync(dataDir)) {
    const found = statSync(join(dataDir, name))
    if (found.isFile()) assert.equal(found.mode & 0o777, 0o600, name)
  }
  assert.deepEqual(listDataDir(), ['postgres', 'postgres-passwords.json', 'postgres.log'])
  assert.equal(statSync(join(dataDir, 'postgres')).mode & 0o777, 0o700)
})

test('a stop leaves no process, no lock, no socket and no temporary folder', { timeout: TIMEOUT_MS }, async () => {
  const embedded = await start()
  const pid = postmasterPid()
  assert.ok('host' in embedded.api)
  const { host } = embedded.api
  assert.ok(existsSync(host))
  await embedded.stop()
  assert.equal(isAlive(pid), false)
  assert.equal(existsSync(host), false)
  assert.equal(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), false)
  assert.equal(existsSync(join(dataDir, 'server.lock')), false)
})

test('as root, Postgres runs as somebody else, without the environment of the server', {
  timeout: TIMEOUT_MS,
  skip: !isRoot || process.platform !== 'linux',
}, async () => {
  const embedded = await start()
  try {
    const pid = postmasterPid()
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    const [, real, effective, saved] = /^Uid:\t(\d+)\t(\d+)\t(\d+)/m.exec(status) ?? []
    assert.ok(Number(real) > 0)
    assert.deepEqual([effective, saved], [real, real])
    assert.match(status, /^Groups:\t\s*$/m)
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8')
      .split('\0')
      .map((entry) => entry.split('=')[0])
    assert.deepEqual(
      environment.filter((name) => name && !/^(LC_|LANG|PATH$|PG)/.test(name)),
      [],
    )
  } finally {
    await embedded.stop()
  }
})

test('a second server on the same data is refused in one sentence while the first works on', {
  timeout: TIMEOUT_MS,
}, async () => {
  const embedded = await start()
  try {
    await assert.rejects(start(), (error) => {
      assert.ok(error instanceof StartError)
      assert.match(
        error.message,
        new RegExp(`^Another Patchcord server \\(process ${process.pid}\\) is running on .*[^\\n]$`),
      )
      return true
    })
    await withSql(embedded.api, (sql) => sql`select 1`)
  } finally {
    await embedded.stop()
  }
})

test('operator verbs find the database of a running server, and none when it is stopped', {
  timeout: TIMEOUT_MS,
}, async () => {
  assert.equal(await findEmbedded(dataDir), null)
  const embedded = await start()
  try {
    await symlink(dataDir, join(parent, 'link'))
    for (const path of [dataDir, join(parent, 'link')]) {
      const found = await findEmbedded(path)
      assert.deepEqual(found?.admin, embedded.admin)
    }
    await withSql(embedded.admin, (sql) => sql`select 1`)
    assert.ok(postmasterPid() > 0)
  } finally {
    await embedded.stop()
  }
})

test('the Postgres of a server killed by -9 is stopped by the next start, and what was committed is there', {
  timeout: TIMEOUT_MS,
}, async () => {
  const { child, ready } = await startOtherServer()
  await ready
  const orphan = postmasterPid()
  const admin = (await findEmbedded(dataDir))?.admin
  assert.ok(admin)
  await withSql(admin, (sql) => sql`insert into public.kept values (2)`)
  child.kill('SIGKILL')
  await once(child, 'exit')
  assert.equal(isAlive(orphan), true)

  const embedded = await start()
  try {
    assert.equal(isAlive(orphan), false)
    assert.notEqual(postmasterPid(), orphan)
    const rows = await withSql(embedded.admin, (sql) => sql`select id from public.kept order by id`)
    assert.deepEqual(
      rows.map(({ id }) => id),
      [1, 2],
    )
  } finally {
    await embedded.stop()
  }
})

test('a server killed together with its Postgres starts again with what was committed', {
  timeout: TIMEOUT_MS,
}, async () => {
  const { child, ready } = await startOtherServer()
  await ready
  const admin = (await findEmbedded(dataDir))?.admin
  assert.ok(admin)
  await withSql(admin, (sql) => sql`insert into public.kept values (3)`)
  process.kill(postmasterPid(), 'SIGKILL')
  child.kill('SIGKILL')
  await once(child, 'exit')
  const embedded = await start()
  try {
    const rows = await withSql(embedded.admin, (sql) => sql`select id from public.kept order by id`)
    assert.deepEqual(
      rows.map(({ id }) => id),
      [1, 2, 3],
    )
  } finally {
    await embedded.stop()
  }
})

test('Postgres that is killed under a running server is started again at the same place', {
  timeout: TIMEOUT_MS,
}, async () => {
  const embedded = await start()
  const sql = connect(embedded.api, { max: 2, applicationName: 'test' })
  try {
    await sql`select 1`
    const killed = postmasterPid()
    process.kill(killed, 'SIGKILL')
    await waitUntil('another Postgres answers', async () => {
      const isAnswered = await sql`select 1`.then(() => true).catch(() => false)
      return isAnswered && existsSync(join(dataDir, 'postgres', 'postmaster.pid')) && postmasterPid() !== killed
    })
    assert.match(lines.join('\n'), /Postgres ended unexpectedly \(SIGKILL\): starting it again/)
  } finally {
    await sql.end({ timeout: 1 })
    await embedded.stop()
  }
  assert.equal(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), false)
})

test('a leftover postmaster.pid that names a stranger hinders nothing and harms nobody', {
  timeout: TIMEOUT_MS,
}, async () => {
  const stranger = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'])
  try {
    const file = [stranger.pid, join(dataDir, 'postgres'), 1, 5432, '/tmp', '', '   1 1', 'ready'].join('\n')
    await writeFile(join(dataDir, 'postgres', 'postmaster.pid'), `${file}\n`)
    assert.equal(await findEmbedded(dataDir), null)
    await (await start()).stop()
    assert.ok(isAlive(stranger.pid ?? 0))
  } finally {
    stranger.kill()
  }
})

test('a data folder made by another Postgres, or without its passwords, is refused in one sentence', {
  timeout: TIMEOUT_MS,
}, async () => {
  for (const [path, wrong, expected] of [
    [
      join(dataDir, 'postgres', 'PG_VERSION'),
      '9',
      /^The data folder .* was made by Postgres 9 and this is Postgres 1\d: /,
    ],
    [join(dataDir, 'postgres-passwords.json'), '{"postgres":"x"}', /^The file .*postgres-passwords.json is damaged: /],
    [join(dataDir, 'postgres-passwords.json'), null, /^The data folder .* has lost its file postgres-passwords.json: /],
  ] as const) {
    const right = await readFile(path)
    if (wrong === null) await rm(path)
    else await writeFile(path, wrong)
    try {
      await assert.rejects(start(), { name: 'StartError', message: expected })
      assert.equal(existsSync(join(dataDir, 'server.lock')), false)
    } finally {
      await writeFile(path, right, { mode: 0o600 })
    }
  }
  await (await start()).stop()
})

test('a start that the database refuses leaves nothing running and the data as it was', {
  timeout: TIMEOUT_MS,
}, async () => {
  const migrations = join(parent, 'migrations')
  await mkdir(migrations)
  await writeFile(join(migrations, '1_bad.sql'), 'select 1/0')
  const failing = startEmbedded({ dataDir, nativeDir: getNativeDir(), log: () => {}, migrations })
  await assert.rejects(failing, { name: 'StartError', message: /^The database is ahead of this Patchcord/ })
  assert.equal(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), false)
  assert.equal(existsSync(join(dataDir, 'server.lock')), false)
  await (await start()).stop()
})

test('an interrupted first start is finished by the next one', { timeout: TIMEOUT_MS }, async () => {
  await rm(dataDir, { recursive: true })
  const { child } = await startOtherServer()
  await waitUntil(
    'initdb works',
    () => existsSync(dataDir) && readdirSync(dataDir).some((name) => /^initdb-\w+$/.test(name)),
  )
  child.kill('SIGKILL')
  await once(child, 'exit')
  assert.equal(existsSync(join(dataDir, 'postgres')), false)
  const embedded = await start()
  await embedded.stop()
  assert.deepEqual(listDataDir(), ['postgres', 'postgres-passwords.json', 'postgres.log'])
})
