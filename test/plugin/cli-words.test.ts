import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createAgent, renameAgent } from '../../server/domain/agents.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { type CommandEnd, findClosedPort, Machine, makeToken } from './command.ts'

const NOBODY = '01900000-0000-7000-8000-000000000000'

describe('what the command says', () => {
  let database: TestDatabase
  let app: TestApp
  let machine: Machine
  let agents: Record<'alice' | 'bob', SeededAgent>
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    machine = await Machine.create()
    agents = await seed(database, 'acme', ['alice', 'bob'])
  })
  after(async () => {
    await machine.remove()
    await app.close()
    await database.drop()
  })

  const run = (...args: string[]): Promise<CommandEnd> =>
    machine.run(args, { env: { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.alice.token } })

  async function assertTold(args: string[], sentences: string): Promise<void> {
    const { code, stdout, stderr } = await run(...args)
    assert.deepEqual([code, stdout, stderr], [1, '', `patchcord: ${sentences}\n`], args.join(' '))
  }

  test('an empty text and what is no id are told before anybody is asked', async () => {
    const env = { PATCHCORD_URL: `http://127.0.0.1:${await findClosedPort()}`, PATCHCORD_TOKEN: makeToken('a') }
    const give = 'Give its text as one argument, or - to read it from stdin.'
    const shown = 'patchcord inbox and patchcord recall show the ids, in [brackets].'
    for (const [args, sentences] of [
      [['send', 'bob', ''], `The message is empty. ${give}`],
      [['send', 'bob', '-'], `The message is empty. ${give}`],
      [['ask', 'bob', ' \n'], `The message is empty. ${give}`],
      [['reply', NOBODY, ''], `The answer is empty. ${give}`],
      [['reply', 'not-a-uuid', 'hi'], `"not-a-uuid" is not the id of a message. ${shown}`],
      [['status', 'xyz'], `"xyz" is not the id of a message. ${shown}`],
      [['status', ''], `"" is not the id of a message. ${shown}`],
      [['recall', '../agents'], `"../agents" is not the id of a message. ${shown}`],
      [['inbox', '--done', `${NOBODY},b`], `"b" is not the id of a message. ${shown}`],
    ] as const) {
      const { code, stdout, stderr } = await machine.run(args, { env })
      assert.deepEqual([code, stdout, stderr], [1, '', `patchcord: ${sentences}\n`], args.join(' '))
    }
    const { code, json } = await machine.run(['status', 'xyz', '--json'], { env })
    assert.deepEqual([code, json.error.code], [1, 'usage'])
  })

  test('an option that the server refuses is told as the option that it is', async () => {
    await assertTold(
      ['send', '', 'hi'],
      'Nobody is named to send it to. Name an agent, a comma list, or * for everyone here (patchcord who --all).',
    )
    await assertTold(
      ['send', 'bob', 'hi', '--kind', 'letter'],
      '--kind takes message, question, report, heads-up or request. Choose one of them.',
    )
    await assertTold(
      ['send', 'bob', 'hi', '--urgency', 'high'],
      '--urgency takes fyi, normal or urgent. Choose one of them.',
    )
    await assertTold(
      ['send', 'bob', 'hi', '--idempotency-key', ''],
      '--idempotency-key takes 1 to 200 characters without control characters. Choose such a key.',
    )
    const thread = '--thread takes 1 to 64 of a-z, 0-9 and hyphen. Choose such a name.'
    const from = '--from takes an agent, such as alice or alice@acme. patchcord who --all lists them.'
    await assertTold(['recall', '--thread', 'My Thread'], thread)
    await assertTold(['wait', '--thread', 'My Thread', '--timeout', '1'], thread)
    await assertTold(['recall', '--from', 'My Friend'], from)
    await assertTold(['wait', '--from', 'My Friend', '--timeout', '1'], from)
    await assertTold(['recall', '--limit', '51'], '--limit takes a number from 1 to 50. Without it ten are shown.')
    await assertTold(['recall', '--limit', 'x'], '--limit takes a number from 1 to 50. Without it ten are shown.')
    await assertTold(
      ['recall', '--offset=-1'],
      '--offset takes a number from 0 to 1000000. The last line of an answer names the one that goes on.',
    )
  })

  test('a hint names the verb of this command, never a tool', async () => {
    const recall = 'There is no such message. patchcord recall lists the messages you sent or received.'
    await assertTold(['reply', NOBODY, 'hi'], recall)
    await assertTold(['status', NOBODY], recall)
    const sent = await machine.run(['send', 'alice', 'read me', '--json'], {
      env: { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.bob.token },
    })
    await assertTold(
      ['reply', sent.json.message_id, 'hi'],
      'That message is still new: nobody has seen its text. Nothing was changed. Run patchcord inbox first.',
    )
  })

  test('who was renamed or misspelt is answered with the nearest name, or else with those who are here', async () => {
    const names = ['lighthouse', 'harbour', 'compass', 'anchor', 'rudder', 'mast', 'keel', 'bow', 'stern']
    const { lighthouse } = await seed(database, 'fleet', names)
    const env = { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: lighthouse?.token ?? '' }
    const send = (to: string) => machine.run(['send', to, 'hi'], { env })
    const near = await send('harbor')
    assert.equal(near.stderr, 'patchcord: Unknown agent "harbor". Nothing was stored. Did you mean harbour?\n')
    await renameAgent(database.admin, { namespace: 'fleet', agent: 'anchor', newName: 'signal' })
    const { code, stderr } = await send('anchor')
    assert.equal(code, 1)
    assert.equal(
      stderr,
      'patchcord: Unknown agent "anchor". Nothing was stored. Agents here: bow, compass, harbour, keel, mast, rudder, signal, stern.\n',
    )
    await createAgent(database.admin, { namespace: 'fleet', name: 'wheel' })
    assert.match((await send('anchor')).stderr, / Agents here: bow, .*, stern and 1 more: patchcord who --all\.\n$/)
  })

  test('a mistake in an option is one line', async () => {
    const { code, stderr } = await run('recall', '--offset', '-1')
    assert.equal(code, 1)
    assert.match(stderr, /^patchcord: Option '--offset' argument is ambiguous\. Usage: patchcord recall .*\n$/)
  })
})
