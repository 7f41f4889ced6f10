import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { INSTRUCTIONS } from '../../../server/mcp/instructions.ts'
import { toolDefinitions } from '../../../server/mcp/server.ts'
import { callRest, createAgents, OPEN_LIMITS } from '../../../test/helpers/loss.ts'
import { connectMcp, startListener, startServer, untilWakeable } from '../../../test/helpers/processes.ts'
import { type BenchOptions, meets, type Row } from './row.ts'

/**
 * Part g: what Patchcord costs a model to read, in o200k tokens. An inbox is fetched by a real client from the built server. A
 * model is shown the text of an answer, or, by clients that prefer it, the structured content; both are counted.
 */

const TARGETS = { tools: '≤ 1300', outputs: '≤ 1500', instructions: '≤ 2047', wake: '≤ 45', empty: '≤ 60' }
const LINE = 'PATCHCORD: 1 new from alice'
/** Of the plugin's monitor. */
const DESCRIPTION = 'patchcord messages'
const MESSAGES = 20
/** As agents write to each other: some sixty tokens. */
const CONTENT =
  'The migration is done on staging: 12 tables, 3.4 million rows, no errors. Two tests of billing fail since then ' +
  '(invoice_rounding, dunning_retry); both expect the old column names. Shall I change the tests, or keep a view with the ' +
  'old names until your release of Thursday is out?'

export async function measure(options: BenchOptions): Promise<Row[]> {
  return [...measureTexts(), ...(await measureInbox(options))]
}

/** What is known without a server. */
export function measureTexts(): Row[] {
  const shown = toolDefinitions.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }))
  const outputs = toolDefinitions.map(({ outputSchema }) => outputSchema)
  const count = (values: unknown[]) =>
    values.reduce<number>((sum, value) => sum + countTokens(JSON.stringify(value)), 0)
  const figure = countTokens(describeEvent(DESCRIPTION, LINE))
  const event = toRow('a wake: the whole event in Claude Code; tokens', figure, TARGETS.wake)
  const envelope = countTokens(describeEvent('', ''))
  const tools = `tools/list, ${shown.length} tools`
  return [
    toRow(`${tools}: names, descriptions, input schemas; tokens`, count(shown), TARGETS.tools),
    toRow(`${tools}: output schemas, which few clients show; tokens`, count(outputs), TARGETS.outputs),
    toRow('instructions: characters', INSTRUCTIONS.length, TARGETS.instructions),
    toRow('instructions: tokens', countTokens(INSTRUCTIONS), null),
    toRow('a wake: the line; tokens', countTokens(LINE), null),
    { ...event, against: `the same event without a word of ours: ${envelope}`, data: { ...event.data, envelope } },
  ]
}

/**
 * As Claude Code tells its model of a monitor's line, whatever the line: only the description and the line are ours. Before it stands
 * a sentence of the client's own, the same for all monitors.
 */
function describeEvent(description: string, line: string): string {
  return [
    '<task-notification>',
    '<task-id>b4k2m9x1q</task-id>',
    `<summary>Monitor event: "${description}"</summary>`,
    `<event>${line}</event>`,
    '</task-notification>',
  ].join('\n')
}

/** Of an agent that can be woken, in a namespace of two. */
async function measureInbox({ folder, onEnd }: BenchOptions): Promise<Row[]> {
  const dataDir = await mkdtemp(join(folder, 'patchcord-bench-tokens-'))
  onEnd(() => rm(dataDir, { recursive: true, force: true, maxRetries: 3 }))
  const server = await startServer({ dataDir, env: { PATCHCORD_LIMITS: OPEN_LIMITS } })
  onEnd(() => server.stop())
  const tokens = await createAgents(dataDir, 'acme', ['alice', 'backend'])
  const [alice, backend] = [tokens.get('alice') as string, tokens.get('backend') as string]
  const listener = await startListener({ url: server.url, token: backend, home: dataDir })
  onEnd(() => listener.stop())
  await untilWakeable(server.url, backend)
  const client = await connectMcp(server.url, backend)
  onEnd(() => client.close())

  const empty = await fetchInbox(client, 0)
  for (let index = 0; index < MESSAGES; index++) {
    const message = { to: 'backend', content: CONTENT, kind: 'report' }
    if (!(await callRest(server.url, alice, 'POST', '/api/messages', message)))
      throw new Error('a send was not answered')
  }
  const full = await fetchInbox(client, MESSAGES)
  const own = countTokens(CONTENT) * MESSAGES
  return [
    toRow('an empty inbox: tokens', empty.text, TARGETS.empty),
    toRow('an empty inbox, structured content: tokens', empty.structured, null),
    {
      ...toRow(`an inbox with ${MESSAGES} messages: tokens`, full.text, null),
      against: `their texts alone: ${own}`,
      ratio: full.text / own,
    },
    toRow(`an inbox with ${MESSAGES} messages, structured content: tokens`, full.structured, null),
  ]
}

async function fetchInbox(client: Awaited<ReturnType<typeof connectMcp>>, messages: number) {
  const { text, data, isError } = await client.call('inbox')
  if (isError) throw new Error(`the inbox was refused: ${text}`)
  const found = (data.messages as unknown[] | undefined)?.length ?? 0
  if (found !== messages) throw new Error(`the inbox has ${found} messages, not ${messages}: ${text}`)
  return { text: countTokens(text), structured: countTokens(JSON.stringify(data)) }
}

function toRow(what: string, figure: number, target: string | null): Row {
  const isMet = target === null ? null : meets(figure, target)
  return { part: 'g', what, measured: String(figure), against: '', ratio: null, target, isMet, data: { figure } }
}
