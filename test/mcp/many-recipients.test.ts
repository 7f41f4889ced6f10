import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { encode } from 'gpt-tokenizer/encoding/o200k_base'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { connectMcp, type McpClient, type ToolResult } from '../helpers/mcp.ts'
import { seed } from '../helpers/seed.ts'

const TOKENS_MAX = 10_000
const COUNT = 900
const FULL = 300

/** Neither form of an answer is more than a client shows a model. */
function assertSize({ text, facts, isError }: ToolResult): void {
  assert.equal(isError, false, text.slice(0, 500))
  const sizes = [encode(text).length, encode(JSON.stringify(facts)).length]
  assert.ok(Math.max(...sizes) <= TOKENS_MAX, `${sizes.join(' and ')} tokens`)
}

describe('a message to hundreds', { timeout: 300_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  let client: McpClient
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { newPerRecipientMax: 1 } })
    const { alice } = await seed(database, 'crowd', ['alice'])
    await database.admin`
      insert into patchcord.agents (namespace_uuid, name)
      select ${alice.namespaceId}, 'backend-of-team-' || n from generate_series(1, ${COUNT}) as n`
    client = await connectMcp(app, alice.token)
    for (let at = 1; at <= FULL; at += 50) {
      const names = Array.from({ length: 50 }, (_, index) => `backend-of-team-${at + index}`)
      await client.call('send_message', { to: names.join(', '), content: 'x', kind: 'report' })
    }
  })
  after(async () => {
    await client.close()
    await app.close()
    await database.drop()
  })

  test('is answered within 10k tokens, with every recipient named or counted by state, and so is its status and its unsend', async () => {
    const sent = await client.call('send_message', { to: '*', content: 'all', expires_in: 60 })
    assertSize(sent)
    const { message_id, recipients, recipients_left_out, left_out, left_out_more } = sent.facts
    assert.deepEqual(recipients_left_out, { new: COUNT - FULL - recipients.length })
    assert.equal(left_out.length + left_out_more, FULL)
    assert.ok(recipients.length >= 50 && left_out.length >= 20)
    assert.match(sent.text, new RegExp(`^Sent to ${COUNT - FULL} agents \\[\\S+\\]; expires unread in `))
    assert.match(sent.text, new RegExp(`\nand (\\d+) more: \\1 new\nNot to .* and ${left_out_more} more: inbox full$`))

    await database.admin`
      update patchcord.deliveries set state = 'done', notified_at = sent.at, fetched_at = sent.at, deferred_at = sent.at,
        answered_at = sent.at, done_at = sent.at, settled_at = sent.at
      from (select clock_timestamp() as at) sent
      where message_id = ${message_id} and to_agent_uuid in (
        select id from patchcord.agents where name < 'backend-of-team-6')`
    const status = await client.call('message_status', { message_id })
    assertSize(status)
    assert.ok(status.facts.recipients.length >= 30)
    const left = Object.values(status.facts.recipients_left_out as Record<string, number>)
    assert.equal(
      left.reduce((sum, count) => sum + count, status.facts.recipients.length),
      COUNT - FULL,
    )
    assert.match(status.text, /\nand \d+ more: \d+ done, \d+ new$/)

    const unsent = await client.call('unsend', { message_id })
    assertSize(unsent)
    assert.match(unsent.text, /\nand \d+ more: /)
  })

  test('that fits names every recipient, and counts none', async () => {
    const { carol } = await seed(database, 'few', ['carol', 'dave', 'erin'])
    const few = await connectMcp(app, carol.token)
    const sent = await few.call('send_message', { to: '*', content: 'all' })
    assert.equal(sent.facts.recipients_left_out, undefined)
    assert.equal((await few.call('message_status', { message_id: sent.facts.message_id })).facts.recipients.length, 2)
    await few.close()
  })
})
