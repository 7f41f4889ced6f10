import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { connect } from '../../server/db/connect.ts'
import { hashCode } from '../../server/domain/codes.ts'
import { getMe, renamePerson, signIn } from '../../server/domain/people.ts'
import { hashToken, isTokenText, resolveToken } from '../../server/domain/tokens.ts'
import { getCluster } from '../helpers/cluster.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { createTemporaryFolder } from '../helpers/processes.ts'
import { openDatabaseUrl, startProgram } from '../helpers/program.ts'

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
const ADMIN = 'dist/server/admin.js'

describe('the operator', () => {
  let database: TestDatabase
  let admin: Awaited<ReturnType<typeof openDatabaseUrl>>
  before(async () => {
    database = await createTestDatabase()
    admin = await openDatabaseUrl(database.adminTarget)
  })
  after(async () => {
    await admin.close()
    await database.drop()
  })

  const run = (...args: string[]) => startProgram(ADMIN, args, { DATABASE_ADMIN_URL: admin.url }).ended

  async function assertRefused(args: string[], sentence: RegExp): Promise<void> {
    const { code, stdout, stderr } = await run(...args)
    assert.match(stderr, sentence)
    assert.equal(stderr.trimEnd().split('\n').length, 1, stderr)
    assert.deepEqual([code, stdout], [1, ''])
  }

  test('shows what has changed about who may enter, and which token is banned', async () => {
    await run('create-namespace', 'logged')
    await run('create-agent', 'alice@logged')
    const { token, id } = JSON.parse((await run('issue-token', 'alice@logged', '--label', 'ci', '--json')).stdout)
    await database.admin`update patchcord.tokens set banned_until = clock_timestamp() + interval '1 hour' where id = ${id}`
    const { stdout } = await run('security-log')
    assert.match(stdout, /^logged_at +event +namespace +agent +token_id +by_name +detail$/m)
    assert.match(stdout, new RegExp(`^[0-9T:.-]+Z +token_created +logged +alice +${id} +operator +ci$`, 'm'))
    assert.ok(!stdout.includes(token))
    const events = JSON.parse((await run('security-log', '--json')).stdout)
    const created = events.filter(({ token_id }: { token_id: string }) => token_id === id)
    assert.deepEqual([created.length, created[0].event, created[0].by_role], [1, 'token_created', 'postgres'])
    assert.match(created[0].logged_at, ISO)
    const [line] = JSON.parse((await run('list-tokens', 'logged', '--json')).stdout)
    assert.match(line.banned_until, ISO)
    assert.match((await run('list-tokens', 'logged')).stdout, /banned_until\n/)
  })

  test('makes namespaces and agents, once each', async () => {
    assert.deepEqual(await run('create-namespace', 'acme'), {
      code: 0,
      stdout: 'Namespace acme is there.\n',
      stderr: '',
    })
    assert.deepEqual(await run('create-agent', 'alice@acme'), {
      code: 0,
      stdout: 'Agent alice@acme is there.\n',
      stderr: '',
    })
    await assertRefused(['create-namespace', 'acme'], /^Namespace acme exists already\. Choose another name\.$/m)
    await assertRefused(['create-agent', 'alice@acme'], /^Agent alice@acme exists already\./)
    await assertRefused(
      ['create-agent', 'bob@nowhere'],
      /^There is no namespace nowhere\. create-namespace makes one\.$/m,
    )
    await assertRefused(
      ['create-namespace', 'Acme'],
      /^"Acme" is not a name for a namespace\. Names are lower case: use "acme"\.$/m,
    )
    const { stdout } = await run('list-namespaces', '--json')
    const [namespace] = JSON.parse(stdout)
    assert.deepEqual([namespace.name, namespace.agents], ['acme', 1])
    assert.match(namespace.created_at, ISO)
  })

  test('issues a token alone on stdout, lists it without its text, and revokes it', async () => {
    await run('create-namespace', 'tokens')
    await run('create-agent', 'alice@tokens')
    const issued = await run('issue-token', 'alice@tokens', '--label', 'laptop', '--expires-in', '30d')
    const token = issued.stdout.trimEnd()
    assert.equal(issued.code, 0)
    assert.ok(isTokenText(token))
    assert.match(issued.stderr, /^Token [\da-f-]{36} of alice@tokens\. It is not shown again/)
    const identity = await resolveToken(database.api, hashToken(token))
    assert.deepEqual([identity.agent, identity.namespace, identity.label], ['alice', 'tokens', 'laptop'])
    const daysLeft = (Date.parse(identity.expiresAt ?? '') - Date.now()) / 86_400_000
    assert.ok(Math.abs(daysLeft - 30) < 0.1, `${daysLeft} days`)
    const listed = await run('list-tokens', 'tokens')
    assert.match(listed.stdout, new RegExp(`^${identity.tokenId}  alice  laptop `, 'm'))
    assert.ok(!listed.stdout.includes(token))
    const revoked = await run('revoke-token', identity.tokenId)
    assert.deepEqual(revoked, { code: 0, stdout: `Token ${identity.tokenId} is revoked.\n`, stderr: '' })
    await assert.rejects(resolveToken(database.api, hashToken(token)), { code: 'token_revoked' })
  })

  test('tells every time in ISO 8601 and UTC, whatever the database is set to', async () => {
    const [row] = await database.admin`select current_database() as name`
    await database.admin.unsafe(`alter database "${row?.name}" set timezone to 'Asia/Kolkata'`)
    const before = Date.now()
    await run('create-namespace', 'times')
    await run('create-agent', 'alice@times')
    await run('issue-token', 'alice@times', '--expires-in', '2d')
    const agents = await run('list-agents', 'times')
    const [, created = '', used] = /^alice +1 +(\S+) +(\S+)$/m.exec(agents.stdout) ?? []
    assert.match(created, ISO)
    assert.equal(used, '-')
    assert.ok(Math.abs(Date.parse(created) - before) < 120_000, `${created} is now`)
    const tokens = await run('list-tokens', 'times')
    assert.equal(tokens.stdout.match(/T\d\d:\d\d:\d\d\.\d{3}Z/g)?.length, 2, tokens.stdout)
    assert.doesNotMatch(tokens.stdout, /\d \d\d:\d\d/)
    const [namespace] = JSON.parse((await run('list-namespaces', '--json')).stdout).filter(
      ({ name }: { name: string }) => name === 'times',
    )
    assert.match(namespace.created_at, ISO)
  })

  test('answers in JSON with --json, notes left out', async () => {
    await run('create-namespace', 'json')
    await run('create-agent', 'alice@json')
    const { stdout, stderr } = await run('issue-token', 'alice@json', '--json')
    const answer = JSON.parse(stdout)
    assert.deepEqual(Object.keys(answer), ['token', 'id', 'agent', 'namespace'])
    assert.ok(isTokenText(answer.token))
    assert.equal(stderr, '')
  })

  test('gives the login of the API a password and prints its DATABASE_URL, which works', async () => {
    const { apiTarget } = database
    try {
      const { code, stdout, stderr } = await run('api-role')
      assert.equal(code, 0)
      assert.match(stderr, /^Role patchcord_api has a new password; set DATABASE_URL to the line above\./)
      const sql = connect({ url: stdout.trim() }, { max: 1, applicationName: 'test' })
      const [row] = await sql`select current_user::text as name`
      await sql.end()
      assert.equal(row?.name, 'patchcord_api')
    } finally {
      // The role is shared by all databases of the test run.
      const { setApiPassword } = await import('../../server/db/migrate.ts')
      await setApiPassword(database.admin, 'password' in apiTarget ? apiTarget.password : '')
    }
  })

  test('makes sign-in links: for the operator, or for a person by name; the link stands alone on stdout', async () => {
    const first = await startProgram(ADMIN, ['login-link'], {
      DATABASE_ADMIN_URL: admin.url,
      PATCHCORD_PUBLIC_URL: 'https://cord.example.org',
    }).ended
    assert.match(first.stdout, /^https:\/\/cord\.example\.org\/login\/[A-Za-z0-9_-]{43}\n$/)
    assert.equal(first.stderr, 'It signs owner in, once, within 15 minutes. Whoever has it is owner.\n')
    const { session } = await signIn(database.api, {
      code: first.stdout.trim().split('/').at(-1) ?? '',
      client: 'test',
    })
    const scope = { sql: database.api, sessionHash: hashCode(session) }
    const { personId } = await getMe(scope)
    await renamePerson(scope, { name: 'Ann' })
    const json = JSON.parse((await run('login-link', 'Ann', '--json')).stdout)
    assert.match(json.url, /^http:\/\/127\.0\.0\.1:8787\/login\/[A-Za-z0-9_-]{43}$/)
    assert.deepEqual([json.person, Object.keys(json)], ['Ann', ['url', 'person', 'expires_at']])
    assert.match((await run('login-link', personId)).stdout, /\/login\//)
    await assertRefused(['login-link', 'Nobody'], /^There is no person Nobody\. An invite makes a new one\.$/m)
    await assertRefused(['login-link', 'a', 'b'], /^Usage: login-link \[PERSON\]$/m)
    const unknown = await startProgram(ADMIN, ['login-link'], { DATABASE_ADMIN_URL: admin.url, PORT: '0' }).ended
    assert.match(unknown.stderr, /^Where the server listens is not known here: set PATCHCORD_PUBLIC_URL\.$/m)
    const events = JSON.parse((await run('security-log', '--json')).stdout)
    const made = events.filter(({ event }: { event: string }) => event === 'login_link_created')
    assert.deepEqual(
      made.map(({ detail, by_name }: { detail: string; by_name: string }) => [detail, by_name]),
      [
        ['for owner', 'operator'],
        ['for Ann', 'operator'],
        ['for Ann', 'operator'],
      ],
    )
  })

  test('migrates, and has nothing to do the second time', async () => {
    assert.deepEqual(await run('migrate'), { code: 0, stdout: 'Nothing to do: up to date.\n', stderr: '' })
    assert.deepEqual(JSON.parse((await run('migrate', '--json')).stdout), { applied: [] })
  })

  test('is told what is wrong with a command in one sentence', async () => {
    await assertRefused(['make-coffee'], /^There is no command make-coffee\. --help shows the commands\.$/m)
    await assertRefused(['create-namespace'], /^Usage: create-namespace NAME$/m)
    await assertRefused(['list-namespaces', 'x'], /^Usage: list-namespaces$/m)
    await assertRefused(['create-agent', 'alice'], /^"alice" is not NAME@NAMESPACE\.$/m)
    await assertRefused(['create-agent', 'a@b', 'c'], /^Usage: create-agent NAME@NAMESPACE$/m)
    await assertRefused(
      ['issue-token', 'alice@acme', '--expires-in', 'soon'],
      /^--expires-in takes a number and s, m, h or d/,
    )
    await assertRefused(['issue-token', 'nobody@acme'], /^There is no agent nobody@acme\. create-agent makes one\.$/m)
    await assertRefused(['revoke-token', 'x'], /^There is no token x\. list-tokens shows their ids\.$/m)
    await assertRefused(['migrate', '--force'], /^Unknown option '--force'\. --help shows the commands\.$/m)
  })

  test('sees the commands with --help, and without a command as an error', async () => {
    const help = await run('--help')
    assert.equal(help.code, 0)
    for (const verb of ['migrate', 'api-role', 'create-namespace', 'issue-token', 'revoke-token']) {
      assert.match(help.stdout, new RegExp(`^  ${verb} `, 'm'))
    }
    assert.equal((await run()).code, 1)
  })
})

describe('the operator without DATABASE_ADMIN_URL', () => {
  test('works on the data folder of a running server', async () => {
    const { dataDir } = await getCluster()
    const { code, stdout } = await startProgram(ADMIN, ['migrate', '--json'], { PATCHCORD_DATA_DIR: dataDir }).ended
    assert.equal(code, 0)
    assert.deepEqual(JSON.parse(stdout), { applied: [] })
    const role = await startProgram(ADMIN, ['api-role'], { PATCHCORD_DATA_DIR: dataDir }).ended
    assert.deepEqual([role.code, role.stdout], [1, ''])
    assert.match(role.stderr, /^api-role is for a database of your own: set DATABASE_ADMIN_URL/)
  })

  test('is told in one sentence when no server runs, or nothing answers', async () => {
    const folder = await createTemporaryFolder()
    const none = await startProgram(ADMIN, ['list-namespaces'], { PATCHCORD_DATA_DIR: folder.path }).ended
    const url = 'postgres://postgres:hunter2@127.0.0.1:1/x'
    const dead = await startProgram(ADMIN, ['list-namespaces'], { DATABASE_ADMIN_URL: url }).ended
    const apiOnly = await startProgram(ADMIN, ['list-namespaces'], { DATABASE_URL: url }).ended
    await folder.remove()
    assert.deepEqual([none.code, dead.code, apiOnly.code], [1, 1, 1])
    assert.match(none.stderr, /^No server is running on \S+: start it \(npm start\), or set .*\.\n$/)
    assert.match(dead.stderr, /^The database \(postgres at 127\.0\.0\.1:1\/x\) answered: .*ECONNREFUSED.*\.\n$/)
    assert.match(apiOnly.stderr, /^Set DATABASE_ADMIN_URL: DATABASE_URL is the login of the API only\.\n$/)
    assert.ok(!dead.stderr.includes('hunter2'))
  })
})
