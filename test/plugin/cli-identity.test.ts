import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { recordTrust, toTrustId } from '../../scripts/lib/identity.cjs'
import { findClosedPort, Machine, makeToken } from './command.ts'

const URL_OF_NOBODY = 'http://127.0.0.1:9'
/** The shape of a token with one letter changed. */
const MISTYPED = `${makeToken('a').slice(0, -1)}_`

async function openMachine(context: TestContext): Promise<Machine> {
  const machine = await Machine.create()
  context.after(() => machine.remove())
  return machine
}

function writeEntry(machine: Machine, authorization: string, url = URL_OF_NOBODY): Promise<string> {
  const entry = { type: 'http', url, headers: { Authorization: authorization } }
  return machine.write('.mcp.json', JSON.stringify({ mcpServers: { patchcord: entry } }))
}

test('a token of .mcp.json that can be none is told once, and exit 4', async (context) => {
  const machine = await openMachine(context)
  const hint = 'patchcord connect --server URL writes the entry anew; or set PATCHCORD_URL and PATCHCORD_TOKEN.'
  for (const [authorization, problem] of [
    [`Bearer ${MISTYPED}`, 'the token in Authorization is mistyped or cut off (its checksum is wrong)'],
    ['Bearer $' + '{NOT_SET}', 'the variable NOT_SET of Authorization is not set'],
    ['Basic abc', 'Authorization is not "Bearer" and a Patchcord token'],
  ] as const) {
    await writeEntry(machine, authorization)
    const told = await machine.run(['who'])
    assert.deepEqual([told.code, told.stdout], [4, ''])
    assert.equal(told.stderr, `patchcord: In .mcp.json, patchcord: ${problem}. ${hint}\n`)
    const watched = await machine.run(['watch'])
    assert.deepEqual([watched.code, watched.stderr], [4, told.stderr])
  }
  const json = await machine.run(['who', '--json'])
  assert.deepEqual([json.code, json.json.error.code, json.stderr], [4, 'token_rejected', ''])
})

test('a .mcp.json that cannot be read is told once, and is no matter of tokens', async (context) => {
  const machine = await openMachine(context)
  const file = await machine.write('.mcp.json', '{')
  const { code, stderr } = await machine.run(['who'])
  assert.equal(code, 1)
  assert.ok(stderr.startsWith(`patchcord: ${file}: .mcp.json parse error: `), stderr)
  assert.equal(stderr.split('parse error').length, 2, stderr)
})

test('of PATCHCORD_URL and PATCHCORD_TOKEN the wrong one is named', async (context) => {
  const machine = await openMachine(context)
  const token = await machine.run(['who'], { env: { PATCHCORD_URL: URL_OF_NOBODY, PATCHCORD_TOKEN: MISTYPED } })
  assert.equal(token.code, 4)
  assert.match(token.stderr, /^patchcord: PATCHCORD_TOKEN is no Patchcord token, or it is cut off or mistyped\. Set /)
  const url = await machine.run(['who'], { env: { PATCHCORD_URL: 'ftp://x', PATCHCORD_TOKEN: makeToken('a') } })
  assert.equal(url.code, 1)
  assert.match(url.stderr, /^patchcord: PATCHCORD_URL is not the address of a server\. It is https:/)
})

test('one variable without the other is said to be ignored, unless .mcp.json names it', async (context) => {
  const machine = await openMachine(context)
  const url = `http://127.0.0.1:${await findClosedPort()}`
  for (const one of ['a', 'b']) {
    recordTrust(join(machine.configFolder, 'trusted.json'), toTrustId({ base: url, token: makeToken(one) }))
  }
  const ignored = (one: string, other: string) =>
    `patchcord: ${one} is ignored, because ${other} is not set: only both together say who you are.\n`
  const token = ignored('PATCHCORD_TOKEN', 'PATCHCORD_URL')
  const alone = await machine.run(['who'], { env: { PATCHCORD_TOKEN: makeToken('b') } })
  assert.equal(alone.code, 1)
  assert.ok(alone.stderr.startsWith(`${token}patchcord: No .mcp.json in `), alone.stderr)
  await writeEntry(machine, `Bearer ${makeToken('a')}`, url)
  const beside = await machine.run(['who'], { env: { PATCHCORD_TOKEN: makeToken('b') } })
  assert.ok(beside.stderr.startsWith(`${token}patchcord: Cannot reach ${url}`), beside.stderr)
  const lonely = await machine.run(['who'], { env: { PATCHCORD_URL: url } })
  assert.ok(lonely.stderr.startsWith(ignored('PATCHCORD_URL', 'PATCHCORD_TOKEN')), lonely.stderr)
  await writeEntry(machine, 'Bearer $' + '{PATCHCORD_TOKEN}', url)
  const named = await machine.run(['who'], { env: { PATCHCORD_TOKEN: makeToken('b') } })
  assert.ok(named.stderr.startsWith(`patchcord: Cannot reach ${url}`), named.stderr)
  const none = await machine.run(['who'], { env: { PATCHCORD_TOKEN: '', PATCHCORD_URL: '' } })
  assert.doesNotMatch(none.stderr, /ignored/)
})
