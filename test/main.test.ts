import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Clock } from '../scripts/dev/faults/programs.ts'
import { Network } from '../scripts/dev/faults/proxy.ts'
import { signIn } from '../server/domain/people.ts'
import { createTokenText } from '../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from './helpers/database.ts'
import { connectMcp } from './helpers/mcp.ts'
import { createTemporaryFolder } from './helpers/processes.ts'
import { openDatabaseUrl, type Program, startProgram } from './helpers/program.ts'
import { seed } from './helpers/seed.ts'

const MAIN = 'dist/server/main.js'
const HOUR_MS = 3_600_000
/** Every look at the database that is made again and again has begun by then. */
const SILENT_MS = 3_000

/** Starts that must fail, with the one sentence that they print. */
async function assertRefused(env: Record<string, string>, sentence: RegExp): Promise<void> {
  const { code, stdout, stderr } = await startProgram(MAIN, [], { LOG_LEVEL: 'silent', ...env }).ended
  assert.match(stderr, sentence)
  assert.equal(stderr.trimEnd().split('\n').length, 1, stderr)
  assert.equal(stdout, '')
  assert.equal(code, 1)
}

async function untilListening({ output, child }: Program): Promise<string> {
  for (;;) {
    const url = /listens on (\S+)/.exec(output.stdout)?.[1]
    if (url) return url
    if (child.exitCode !== null) throw new Error(`ended: ${output.stderr}`)
    await sleep(20)
  }
}

test('a start with room for few connections says so', { skip: process.platform !== 'linux' }, async () => {
  const warnings = async (files: number) => {
    const child = spawn('sh', ['-c', `ulimit -n ${files} && exec "$0" ${MAIN}`, process.execPath], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: process.env.PATH ?? '', PORT: '0', DATABASE_URL: 'postgres://127.0.0.1:1/none' },
    })
    const lines = (await child.stderr.setEncoding('utf8').toArray()).join('').split('\n')
    return lines.filter((line) => line.includes('"level":40')).map((line) => JSON.parse(line).msg as string)
  }
  const sentence =
    'This process may open 600 files, which is enough for about 500 of 25000 connections: ' +
    'run "ulimit -n 25100" before the start if more will come.'
  assert.deepEqual(await warnings(600), [sentence])
})

describe('a start that cannot succeed says why in one sentence and exits 1', () => {
  let folder: Awaited<ReturnType<typeof createTemporaryFolder>>
  before(async () => {
    folder = await createTemporaryFolder()
  })
  after(() => folder.remove())

  test('a wrong variable is named, and its value is not repeated', async () => {
    await assertRefused({ PORT: 'secret' }, /^PORT must be a whole number from 0 to 65535\.$/m)
    await assertRefused(
      { DATABASE_URL: 'secret' },
      /^DATABASE_URL must be a URL that starts with postgres:\/\/(?!.*secret)/,
    )
    await assertRefused({ PATCHCORD_LIMITS: '{"x":1}' }, /^PATCHCORD_LIMITS must be a JSON object of known limits/)
  })

  test('a port in use, before anything is written', async () => {
    const other = createServer()
    other.listen(0, '127.0.0.1')
    await once(other, 'listening')
    const { port } = other.address() as AddressInfo
    const dataDir = join(folder.path, 'port')
    try {
      await assertRefused(
        { PORT: String(port), PATCHCORD_DATA_DIR: dataDir },
        new RegExp(
          `^Port ${port} of 127\\.0\\.0\\.1 is in use: stop the other program, or set PORT to another one\\.$`,
          'm',
        ),
      )
    } finally {
      other.close()
    }
    assert.equal(existsSync(dataDir), false)
  })

  test('an address that is not of this machine', async () => {
    const env = { HOST: '192.0.2.1', PORT: '18787', PATCHCORD_DATA_DIR: join(folder.path, 'host') }
    await assertRefused(env, /^HOST 192\.0\.2\.1 is not an address of this machine\.$/m)
  })

  test('a data folder that cannot be written', async () => {
    const file = join(folder.path, 'file')
    await writeFile(file, 'not a folder')
    for (const dataDir of [file, join(file, 'below'), '/proc/patchcord']) {
      await assertRefused(
        { PORT: '0', PATCHCORD_DATA_DIR: dataDir },
        /^The data folder \S+ cannot be written \(E\w+\): set /,
      )
    }
  })

  test('a database that cannot be reached', async () => {
    const url = 'postgres://patchcord_api:hunter2@127.0.0.1:1/patchcord'
    const sentence =
      /^The database of DATABASE_URL cannot be used \(patchcord_api at 127\.0\.0\.1:1\/patchcord\): .*ECONNREFUSED/
    await assertRefused({ PORT: '0', DATABASE_URL: url }, sentence)
    const admin = { DATABASE_ADMIN_URL: url.replace('patchcord_api', 'postgres') }
    await assertRefused(
      { PORT: '0', DATABASE_URL: url, ...admin },
      /^The database of DATABASE_ADMIN_URL cannot be used/,
    )
  })
})

describe('a server on a database of its own', () => {
  let database: TestDatabase
  let api: Awaited<ReturnType<typeof openDatabaseUrl>>
  let admin: Awaited<ReturnType<typeof openDatabaseUrl>>
  before(async () => {
    database = await createTestDatabase()
    api = await openDatabaseUrl(database.apiTarget)
    admin = await openDatabaseUrl(database.adminTarget)
  })
  after(async () => {
    await api.close()
    await admin.close()
    await database.drop()
  })

  test('refuses a login that row-level security does not bind', async () => {
    await assertRefused(
      { PORT: '0', DATABASE_URL: admin.url },
      /^DATABASE_URL logs in as postgres, which row-level security does not bind: use the login of patchcord_api/,
    )
  })

  test('refuses a wrong password without repeating it', async () => {
    const url = new URL(api.url)
    url.password = 'hunter2'
    const sentence =
      /^The database of DATABASE_URL cannot be used \((?!.*hunter2).*\): password authentication failed for user "patchcord_api"\.$/m
    await assertRefused({ PORT: '0', DATABASE_URL: url.href }, sentence)
  })

  test('refuses a database that is ahead of it and one that is behind', async () => {
    const history = database.admin('supabase_migrations.schema_migrations')
    const sql = database.admin
    const env = { PORT: '0', DATABASE_URL: api.url }
    await sql`insert into ${history} (version, name) values ('29990101000000', 'future')`
    try {
      await assertRefused({ ...env, DATABASE_ADMIN_URL: admin.url }, /^The database is ahead of this Patchcord/)
      await assertRefused(env, /^The database is ahead of this Patchcord/)
    } finally {
      await sql`delete from ${history} where version = '29990101000000'`
    }
    const [newest] = await sql`
      delete from ${history} where version = (select max(version) from ${history}) returning version, name`
    try {
      await assertRefused(
        env,
        /^The database is not migrated to this version of Patchcord: set DATABASE_ADMIN_URL, or run /,
      )
    } finally {
      await sql`insert into ${history} (version, name) values (${newest?.version as string}, ${newest?.name as string})`
    }
  })

  test('quits at the second key press, however long a request takes', async () => {
    const program = startProgram(MAIN, [], { PORT: '0', DATABASE_URL: api.url, DATABASE_ADMIN_URL: admin.url })
    const url = await untilListening(program)
    await database.admin.begin(async (sql) => {
      await sql`lock table patchcord.tokens in access exclusive mode`
      const held = fetch(`${url}/api/whoami`, { headers: { authorization: `Bearer ${createTokenText()}` } })
      const cut = assert.rejects(held)
      await sleep(500)
      program.child.kill('SIGINT')
      await sleep(1_500)
      assert.equal(program.child.exitCode, null)
      const pressedAt = performance.now()
      program.child.kill('SIGINT')
      assert.equal((await program.ended).code, 1)
      assert.ok(performance.now() - pressedAt < 3_000)
      await cut
    })
  })

  test('migrates, listens, says so in its first line, and ends on SIGTERM with 0', async () => {
    const env = { PORT: '0', DATABASE_URL: api.url, DATABASE_ADMIN_URL: admin.url, LOG_LEVEL: 'error' }
    const program = startProgram(MAIN, [], env)
    const url = await untilListening(program)
    assert.match(program.output.stdout, /^Patchcord listens on http:\/\/127\.0\.0\.1:\d+\n/)
    const health = await (await fetch(`${url}/health`)).json()
    assert.equal((health as { realtime: string }).realtime, 'not_configured')
    const [settings] = await database.admin`select sends_broadcast from patchcord.settings`
    assert.equal(settings?.sends_broadcast, false)
    program.child.kill('SIGTERM')
    assert.deepEqual(await program.ended, { code: 0, stdout: program.output.stdout, stderr: '' })
  })

  test('prints a sign-in link at each start until somebody has signed in, and then none', async () => {
    const env = { PORT: '0', DATABASE_URL: api.url, DATABASE_ADMIN_URL: admin.url, LOG_LEVEL: 'error' }
    const start = async (extras: Record<string, string> = {}) => {
      const program = startProgram(MAIN, [], { ...env, ...extras })
      const url = await untilListening(program)
      while (!/token create alice@acme\n/.test(program.output.stdout)) await sleep(20)
      program.child.kill('SIGTERM')
      const { code, stdout, stderr } = await program.ended
      assert.deepEqual([code, stderr], [0, ''])
      return { stdout, url }
    }
    const LINK =
      /^Sign in: (\S+)\/login\/([A-Za-z0-9_-]{43})\n {2}\(once, within 15 minutes; patchcord login-link makes another\)$/m
    const first = await start()
    assert.equal(LINK.exec(first.stdout)?.[1], first.url)
    const second = await start({ PATCHCORD_PUBLIC_URL: 'https://cord.example.org/' })
    assert.equal(LINK.exec(second.stdout)?.[1], 'https://cord.example.org')
    const [, , code = ''] = LINK.exec(first.stdout) ?? []
    assert.equal((await signIn(database.api, { code, client: 'test' })).person, 'owner')
    assert.doesNotMatch((await start()).stdout, /Sign in|login/)
  })

  test('ends on SIGTERM within ten seconds though its database has fallen silent', async () => {
    const { bob } = await seed(database, 'silent', ['bob'])
    const url = new URL(api.url)
    const place = { host: url.hostname, port: Number(url.port) }
    const network = new Network(
      () => [place],
      () => 0,
      () => HOUR_MS,
    )
    url.port = String(await network.open())
    const program = startProgram(MAIN, [], { PORT: '0', DATABASE_URL: url.href, LOG_LEVEL: 'silent' })
    try {
      const client = await connectMcp({ url: await untilListening(program) }, bob.token)
      // Whoever waits is looked after every second, by queries which nobody answers from now on.
      const waiting = client.call('wait_for_message', { timeout_seconds: 60 }).catch(() => undefined)
      await sleep(1_000)
      network.silence()
      await sleep(SILENT_MS)
      const askedAt = performance.now()
      program.child.kill('SIGTERM')
      assert.equal((await program.ended).code, 0)
      assert.ok(performance.now() - askedAt < 10_500, `${performance.now() - askedAt} ms`)
      await client.close()
      await waiting
    } finally {
      program.child.kill('SIGKILL')
      await network.close()
    }
  })

  test('ends a wait in time after its clock was set back', async () => {
    const folder = await createTemporaryFolder()
    const clock = new Clock(folder.path, 'server')
    const { bob } = await seed(database, 'set-back', ['bob'])
    const env = { PORT: '0', DATABASE_URL: api.url, LOG_LEVEL: 'silent', ...clock.environment }
    const program = startProgram(MAIN, [], env)
    try {
      const client = await connectMcp({ url: await untilListening(program) }, bob.token)
      const began = performance.now()
      const waiting = client.call('wait_for_message', { timeout_seconds: 5 })
      await sleep(1_000)
      clock.set(-HOUR_MS)
      // A wake whose message somebody else has fetched: the wait begins anew, with what is left of its time.
      const wake = { id: randomUUID(), toAgentId: bob.agentId, from: 'alice', thread: null }
      await database.api`select pg_notify('patchcord_wakes', ${JSON.stringify({ from: randomUUID(), wakes: [wake] })})`
      const { facts } = await waiting
      const tookMs = performance.now() - began
      assert.equal(facts.end, 'timeout')
      assert.ok(tookMs > 4_000 && tookMs < 20_000, `${tookMs} ms`)
      await client.close()
      program.child.kill('SIGTERM')
      assert.equal((await program.ended).code, 0)
    } finally {
      program.child.kill('SIGKILL')
      await folder.remove()
    }
  })

  test('switches the broadcasts of the database on where Supabase Realtime carries the wakes', async () => {
    const supabase = { SUPABASE_URL: 'https://x.supabase.co', SUPABASE_PUBLISHABLE_KEY: 'sb_publishable_x' }
    const env = { PORT: '0', DATABASE_URL: api.url, DATABASE_ADMIN_URL: admin.url, SUPABASE_JWT_SECRET: 's'.repeat(32) }
    const program = startProgram(MAIN, [], { ...env, ...supabase, LOG_LEVEL: 'warn' })
    const url = await untilListening(program)
    const health = await (await fetch(`${url}/health`)).json()
    program.child.kill('SIGINT')
    assert.equal((await program.ended).code, 0)
    assert.equal((health as { realtime: string }).realtime, 'broadcast')
    const [settings] = await database.admin`select sends_broadcast from patchcord.settings`
    assert.equal(settings?.sends_broadcast, true)
  })
})

describe('a server on an embedded database', () => {
  let folder: Awaited<ReturnType<typeof createTemporaryFolder>>
  before(async () => {
    folder = await createTemporaryFolder()
  })
  after(() => folder.remove())

  const start = (env: Record<string, string> = {}) =>
    startProgram(MAIN, [], { PORT: '0', PATCHCORD_DATA_DIR: join(folder.path, 'data'), LOG_LEVEL: 'error', ...env })
  const assertStopped = () => {
    for (const file of ['postgres/postmaster.pid', 'server.lock']) {
      assert.equal(existsSync(join(folder.path, 'data', file)), false, file)
    }
  }

  test('says how to make the first agent, and stops with its Postgres at the first of two signals', async () => {
    const program = start()
    await untilListening(program)
    while (!program.output.stdout.includes('patchcord token create')) await sleep(10)
    assert.match(program.output.stdout, /\n {2}patchcord namespace create acme\n/)
    // One Ctrl-C under npm is two signals.
    program.child.kill('SIGINT')
    program.child.kill('SIGINT')
    const { code, stderr } = await program.ended
    assert.deepEqual([code, stderr], [0, ''])
    assertStopped()
  })

  test('an error that nobody caught is logged, stops Postgres and exits 1', async () => {
    const code = "process.on('SIGUSR2', () => { throw new Error('boom') })"
    const program = start({ NODE_OPTIONS: `--import="data:text/javascript,${encodeURIComponent(code)}"` })
    await untilListening(program)
    program.child.kill('SIGUSR2')
    const end = await program.ended
    assert.equal(end.code, 1)
    const line = JSON.parse(end.stderr.split('\n')[0] ?? '')
    assert.deepEqual([line.level, line.msg, line.err.message], [60, 'uncaught error', 'boom'])
    assertStopped()
  })

  test('a signal while it starts ends it as cleanly', async () => {
    const program = start()
    while (program.child.exitCode === null && !existsSync(join(folder.path, 'data', 'server.lock'))) await sleep(5)
    program.child.kill('SIGTERM')
    assert.equal((await program.ended).code, 0)
    assertStopped()
  })
})
