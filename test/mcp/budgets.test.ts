import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encode } from 'gpt-tokenizer/encoding/o200k_base'
import { INSTRUCTIONS } from '../../server/mcp/instructions.ts'
import { toolDefinitions } from '../../server/mcp/server.ts'

const TOOLS_MAX = 16
/** Of all tools there will ever be; what is not there yet must fit in as well. */
const INPUT_TOKENS_MAX = 1_300
const OUTPUT_TOKENS_MAX = 1_500
const TOOL_TOKENS_MAX = 150
const INSTRUCTIONS_CHARACTERS_MAX = 2_048

const ORDER = [
  'inbox',
  'send_message',
  'reply',
  'wait_for_message',
  'recall',
  'unsend',
  'message_status',
  'list_agents',
]

function countTokens(value: unknown): number {
  return encode(JSON.stringify(value)).length
}

test('the tools stand in the order of the contract', () => {
  assert.deepEqual(
    toolDefinitions.map(({ name }) => name),
    ORDER,
  )
  assert.ok(toolDefinitions.length <= TOOLS_MAX)
})

test('what a model is shown of the tools keeps within its budget', () => {
  const counts = toolDefinitions.map(({ name, description, inputSchema }) =>
    countTokens({ name, description, inputSchema }),
  )
  const left = (TOOLS_MAX - toolDefinitions.length) * 60
  const sum = counts.reduce((total, count) => total + count, 0)
  assert.ok(sum + left <= INPUT_TOKENS_MAX, `${sum} tokens leave no room for ${left}`)
  assert.ok(Math.max(...counts) <= TOOL_TOKENS_MAX, counts.join(', '))
})

test('output schemas keep within theirs', () => {
  const sum = toolDefinitions.reduce((total, { outputSchema }) => total + countTokens(outputSchema), 0)
  assert.ok(sum <= OUTPUT_TOKENS_MAX, `${sum} tokens`)
})

test('schemas hold nothing that only costs tokens', () => {
  const text = JSON.stringify(toolDefinitions)
  assert.ok(!text.includes('$schema'))
  assert.ok(!text.includes(String(Number.MAX_SAFE_INTEGER)))
})

test('every tool has a title and all four annotations, and none needs an approval where the policy is never', () => {
  for (const { name, title, annotations } of toolDefinitions) {
    assert.ok(title, name)
    assert.deepEqual(Object.keys(annotations), ['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint'])
    assert.ok(annotations.readOnlyHint || (!annotations.destructiveHint && !annotations.openWorldHint), name)
  }
  const readOnly = toolDefinitions.filter(({ annotations }) => annotations.readOnlyHint).map(({ name }) => name)
  assert.deepEqual(readOnly, ['recall', 'message_status', 'list_agents'])
})

test('descriptions and instructions state facts and give no orders', () => {
  const orders = /\b(?:you must|must|always|never|immediately|important|do not|don't|please|should)\b/i
  for (const { name, description } of toolDefinitions) assert.doesNotMatch(description, orders, name)
  assert.doesNotMatch(INSTRUCTIONS, orders)
})

test('the instructions are shorter than the clients cut them', () => {
  assert.ok(INSTRUCTIONS.length < INSTRUCTIONS_CHARACTERS_MAX, `${INSTRUCTIONS.length} characters`)
})

test('the four tools of a conversation stand ready where others are loaded on demand', () => {
  const ready = toolDefinitions.filter(({ _meta }) => _meta['anthropic/alwaysLoad'] === true)
  assert.deepEqual(
    ready.map(({ name }) => name),
    ['inbox', 'send_message', 'reply', 'wait_for_message'],
  )
})
