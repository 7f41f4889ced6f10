import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { messageIn, sendRaw, toolCall, toToolResult } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const PARALLEL = 64

describe('agents who share a server', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let app: TestApp

  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { sendBurst: 1_000, waitersPerAgentMax: 200 } })
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  async function callRaw(agent: SeededAgent, era: 'legacy' | 'modern', id: number, name: string, args: object) {
    const answer = await sendRaw(app, { token: agent.token, ...toolCall(era, id, name, args) })
    const message = messageIn(answer.text)
    assert.equal(message.id, id)
    return toToolResult(message.result)
  }

  test('never see each other’s answers, with the same request ids at the same time', async () => {
    const { anna, zoe } = await seed(database, 'left', ['anna', 'zoe'])
    const { anna: other, zoe: otherZoe } = await seed(database, 'right', ['anna', 'zoe'])
    await callRaw(zoe, 'legacy', 1, 'send_message', { to: 'anna', content: 'only for the left' })
    await callRaw(otherZoe, 'legacy', 1, 'send_message', { to: 'anna', content: 'only for the right' })
    const calls = Array.from({ length: PARALLEL }, async (_, index) => {
      const [agent, side] = index % 2 === 0 ? ([anna, 'left'] as const) : ([other, 'right'] as const)
      const era = index % 4 < 2 ? 'legacy' : 'modern'
      const { text } = await callRaw(agent, era, 7, index % 8 < 4 ? 'inbox' : 'recall', {})
      return { text, side }
    })
    for (const { text, side } of await Promise.all(calls)) {
      const strange = side === 'left' ? 'right' : 'left'
      assert.ok(!text.includes(`@${strange}`) && !text.includes(`for the ${strange}`), text)
    }
    assert.match((await callRaw(anna, 'modern', 7, 'recall', {})).text, /only for the left/)
  })

  test('are woken by their own messages, and by no other’s, while all wait under the same id', async () => {
    const names = Array.from({ length: PARALLEL / 2 }, (_, index) => `agent-${index}`)
    const agents = Object.values(await seed(database, 'many', [...names, 'sender']))
    const sender = agents.find(({ agent }) => agent === 'sender') as SeededAgent
    const waiting = agents.filter((agent) => agent !== sender)
    const waits = waiting.map(async (agent, index) => {
      const era = index % 2 === 0 ? 'legacy' : 'modern'
      const { text } = await callRaw(agent, era, 9, 'wait_for_message', { timeout_seconds: 30 })
      assert.match(text, new RegExp(`\nfor ${agent.agent}\n`))
    })
    const sends = waiting.map((agent, index) =>
      callRaw(sender, index % 2 === 0 ? 'modern' : 'legacy', 9, 'send_message', {
        to: agent.agent,
        content: `for ${agent.agent}`,
      }),
    )
    for (const { isError, text } of await Promise.all(sends)) assert.equal(isError, false, text)
    await Promise.all(waits)
  })
})
