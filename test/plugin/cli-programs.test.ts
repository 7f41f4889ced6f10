import assert from 'node:assert/strict'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { isTokenText } from '../../scripts/lib/identity.cjs'
import { sendMessage } from '../../server/domain/messages.ts'
import { hashToken, resolveToken } from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { createTemporaryFolder } from '../helpers/processes.ts'
import { openDatabaseUrl } from '../helpers/program.ts'
import { seed } from '../helpers/seed.ts'
import { eventually, Machine } from './command.ts'

describe('the operator at the command line', () => {
  let database: TestDatabase
  let admin: Awaited<ReturnType<typeof openDatabaseUrl>>
  let machine: Machine
  before(async () => {
    database = await createTestDatabase()
    admin = await openDatabaseUrl(database.adminTarget)
    machine = await Machine.create()
  })
  after(async () => {
    await machine.remove()
    await admin.close()
    await database.drop()
  })

  const run = (...args: string[]) => machine.run(args, { env: { DATABASE_ADMIN_URL: admin.url } })

  test('makes namespaces, agents and tokens, lists them, and is told about mistakes in the words of this command', async () => {
    assert.equal((await run('namespace', 'create', 'acme')).stdout, 'Namespace acme is there.\n')
    assert.equal((await run('agent', 'create', 'backend@acme')).stdout, 'Agent backend@acme is there.\n')
    const created = await run('token', 'create', 'backend@acme', '--label', 'laptop', '--expires-in', '30d')
    assert.ok(isTokenText(created.stdout.trimEnd()))
    assert.match(created.stderr, /^Token [0-9a-f-]{36} of backend@acme\. It is not shown again/)
    const namespaces = await run('namespace', 'list', '--json')
    assert.deepEqual(
      namespaces.json.map(({ name }: { name: string }) => name),
      ['acme'],
    )
    const agents = await run('agent', 'list', 'acme', '--json')
    assert.deepEqual(
      agents.json.map(({ name, tokens }: { name: string; tokens: number }) => [name, tokens]),
      [['backend', 1]],
    )
    await database.admin`update patchcord.tokens set banned_until = clock_timestamp() + interval '5 minutes'`
    assert.match((await run('token', 'list', 'acme')).stdout, /^id .* banned_until\n.* \d{4}-\d\d-\d\dT[0-9:.]+Z\n$/)
    await database.admin`update patchcord.tokens set banned_until = null`
    const tokens = await run('token', 'list', 'acme')
    assert.match(tokens.stdout, /^[0-9a-f-]{36} {2}backend {2}laptop /m)
    const missing = await run('token', 'create', 'nobody@acme')
    assert.deepEqual([missing.code, missing.stdout], [1, ''])
    assert.equal(missing.stderr, 'patchcord: There is no agent nobody@acme. patchcord agent create makes one.\n')
    const json = await run('token', 'create', 'nobody@acme', '--json')
    assert.deepEqual([json.code, json.json.error.code, json.stderr], [1, 'not_found', ''])
    assert.match((await run('agent', 'create')).stderr, /^patchcord: patchcord agent create takes NAME@NAMESPACE\./)
    assert.match((await run('agent', 'crate', 'x@y')).stderr, /Did you mean patchcord agent create\?/)
    assert.match((await run('agent', 'list', 'acme', '--label', 'x')).stderr, /--label does not belong here/)
  })

  test('a database that has none of our tables is told with the command that makes them', async () => {
    const url = new URL(admin.url)
    url.pathname = '/postgres'
    const { code, stderr } = await machine.run(['namespace', 'list'], { env: { DATABASE_ADMIN_URL: url.href } })
    assert.equal(code, 1)
    assert.equal(stderr, 'patchcord: The database is not migrated: npm run admin -- migrate does it.\n')
  })

  test('rotates a token: the old one is refused, the new one is the same agent with the same label and life', async () => {
    await run('namespace', 'create', 'rotation')
    await run('agent', 'create', 'alice@rotation')
    const { json: old } = await run(
      'token',
      'create',
      'alice@rotation',
      '--label',
      'laptop',
      '--expires-in',
      '2d',
      '--json',
    )
    const { code, json } = await run('token', 'rotate', old.id, '--json')
    assert.equal(code, 0)
    assert.equal(json.revoked, old.id)
    await assert.rejects(resolveToken(database.api, hashToken(old.token)), { code: 'token_revoked' })
    const identity = await resolveToken(database.api, hashToken(json.token))
    assert.deepEqual([identity.agent, identity.namespace, identity.label], ['alice', 'rotation', 'laptop'])
    const daysLeft = (Date.parse(identity.expiresAt ?? '') - Date.now()) / 86_400_000
    assert.ok(Math.abs(daysLeft - 2) < 0.1, `${daysLeft} days`)
    const again = await run('token', 'rotate', old.id)
    assert.match(again.stderr, /^patchcord: Token \S+ is revoked already\. patchcord token create makes a new one\.$/m)
    const { json: overlapped } = await run('token', 'rotate', json.id, '--overlap', '1h', '--json')
    const minutesLeft = (Date.parse(overlapped.old_ends_at) - Date.now()) / 60_000
    assert.deepEqual([overlapped.old, Math.round(minutesLeft)], [json.id, 60])
    await resolveToken(database.api, hashToken(json.token))
    assert.equal((await run('token', 'revoke', json.id)).code, 0)
    await assert.rejects(resolveToken(database.api, hashToken(json.token)), { code: 'token_revoked' })
  })

  test('renames agents and namespaces: tokens stay valid, and a name that messages carry is nobody else’s', async () => {
    await run('namespace', 'create', 'acme')
    const { alice } = await seed(database, 'before', ['alice', 'bob'])
    assert.equal((await run('agent', 'rename', 'alice@before', 'bob')).code, 1)
    const rename = await run('agent', 'rename', 'alice@before', 'alicia')
    assert.equal(rename.stdout, 'Agent alice@before is called alicia@before now; its tokens stay valid.\n')
    assert.equal((await resolveToken(database.api, alice.tokenHash)).agent, 'alicia')
    // Nothing was ever sent as alice, so the name is free.
    assert.equal((await run('agent', 'rename', 'alicia@before', 'alice')).code, 0)
    await alice((scope) => sendMessage(scope, { to: 'bob', content: 'hi' }))
    assert.equal((await run('agent', 'rename', 'alice@before', 'alicia')).code, 0)
    const taken = await run('agent', 'create', 'alice@before')
    assert.match(
      taken.stderr,
      /^patchcord: The name alice stands in messages of an agent that had it before\. Choose another name\.$/m,
    )
    assert.equal((await run('agent', 'rename', 'bob@before', 'alice')).code, 1)
    assert.equal((await run('agent', 'rename', 'alicia@before', 'alice')).code, 0)
    assert.equal((await run('namespace', 'rename', 'before', 'acme')).code, 1)
    assert.equal(
      (await run('namespace', 'rename', 'before', 'later')).stdout,
      'Namespace before is called later now.\n',
    )
    assert.equal((await resolveToken(database.api, alice.tokenHash)).namespace, 'later')
    assert.match(
      (await run('namespace', 'create', 'before')).stderr,
      /The name before stands in messages of a namespace that had it before/,
    )
  })
})

describe('serve', () => {
  test('runs the server, passes a signal on, and ends with its exit code', async () => {
    const machine = await Machine.create()
    const folder = await createTemporaryFolder()
    try {
      const serving = machine.start(['serve'], {
        env: { PATCHCORD_DATA_DIR: folder.path, PORT: '0', LOG_LEVEL: 'warn' },
      })
      await eventually(() => /listens on http:\/\/\S+/.test(serving.output.stdout), 'the server listens')
      const url = /listens on (http:\/\/\S+)/.exec(serving.output.stdout)?.[1]
      assert.equal((await fetch(`${url}/health`)).status, 200)
      const env = { PATCHCORD_DATA_DIR: folder.path }
      const link = await machine.run(['login-link'], { env })
      assert.match(link.stdout, /^\S+\/login\/[A-Za-z0-9_-]{43}\n$/)
      assert.equal(new URL(link.stdout).origin, url)
      assert.match(link.stderr, /^It signs owner in, once, within 15 minutes\./)
      const { json } = await machine.run(['login-link', 'owner', '--json'], { env })
      assert.deepEqual([new URL(json.url).origin, json.person], [url, 'owner'])
      const note = join(folder.path, 'address')
      assert.equal((await stat(note)).mode & 0o777, 0o600)
      serving.child.kill('SIGTERM')
      assert.equal((await serving.ended).code, 0)
      await assert.rejects(stat(note), { code: 'ENOENT' })
      const ended = await machine.run(['login-link'], { env })
      assert.match(ended.stderr, /^patchcord: No server is running on /)
      await assert.rejects(fetch(`${url}/health`))
      const wrong = await machine.run(['serve'], { env: { PORT: 'x' } })
      assert.deepEqual([wrong.code, /PORT/.test(wrong.stderr)], [1, true])
    } finally {
      await folder.remove()
      await machine.remove()
    }
  })
})
