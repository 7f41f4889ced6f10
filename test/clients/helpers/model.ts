import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** What Claude Code and Codex take for their model: a script on loopback, which remembers every request whole. */

const WAIT_MS = 120_000
const SHOWN_REQUESTS = 5
const SHOWN_CHARACTERS = 3_000

export type Json = Record<string, unknown>

/** What the model says. `tools` are called in one turn; Codex: `custom` is the code of its `exec` tool. */
export interface ModelReply {
  text?: string
  tools?: { name: string; input?: Json; namespace?: string }[]
  custom?: { name: string; input: string }
  /** The answer comes this much later, so that things can arrive while a turn runs. */
  delayMs?: number
}

export interface ModelRequest {
  /** performance.now() when it had arrived whole. */
  at: number
  /** Its place in `requests`. */
  index: number
  headers: IncomingMessage['headers']
  body: Json
  /** A request of the conversation, as against one for a title or a summary, which has no tools. */
  isMain: boolean
  /** The text of what is new to the model since its own last word: tool results, events, prompts, notes of hooks. */
  news: string
  /** The text of the whole conversation. */
  text: string
}

export type ModelScript = (request: ModelRequest) => ModelReply | Promise<ModelReply>

/** Replies in turn; afterwards `otherwise`, by default a text that counts up. Only requests of the conversation take a step. */
export function steps(replies: ModelReply[], otherwise: ModelScript = createCounter()): ModelScript {
  const left = [...replies]
  return (request) => left.shift() ?? otherwise(request)
}

function createCounter(): ModelScript {
  let count = 0
  return () => ({ text: `noted ${++count}` })
}

/**
 * When something is heard, its replies follow one another; while they do, and for anything else, nothing else is heard. A rule
 * serves as often as it is heard.
 */
export function react(rules: [heard: RegExp, replies: (ModelReply | ModelScript)[]][]): ModelScript {
  const left: (ModelReply | ModelScript)[] = []
  const otherwise = createCounter()
  return (request) => {
    if (left.length === 0) left.push(...(rules.find(([heard]) => heard.test(request.news))?.[1] ?? []))
    const next = left.shift() ?? otherwise
    return typeof next === 'function' ? next(request) : next
  }
}

/** One tool call. */
export function callTool(name: string, input: Json = {}): ModelReply {
  return { tools: [{ name, input }] }
}

abstract class ScriptedModel {
  /** Every request for an answer, in order of arrival. */
  readonly requests: ModelRequest[] = []
  /** Paths of anything else that was asked for. */
  readonly others: string[] = []
  script: ModelScript
  #answering = 0
  #busyAt = Number.NEGATIVE_INFINITY
  #server: Server
  #waiters = new Set<() => void>()

  constructor(script: ModelScript = steps([])) {
    this.script = script
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch((error: unknown) => {
        response.writeHead(500, { 'content-type': 'text/plain' }).end(String(error))
      })
    })
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async listen(): Promise<this> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return this
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeAllConnections()
    await closed
  }

  /** For how long nothing was asked or answered, in ms; 0 while an answer is being made. */
  get quietMs(): number {
    return this.#answering > 0 ? 0 : performance.now() - this.#busyAt
  }

  /** The first request from `from` on (an index, by default of all) that fits. Throws with the last requests after a while. */
  async waitForRequest(
    isWanted: (request: ModelRequest) => boolean,
    { from = 0, timeoutMs = WAIT_MS, what = 'a request' }: { from?: number; timeoutMs?: number; what?: string } = {},
  ): Promise<ModelRequest> {
    const until = performance.now() + timeoutMs
    for (;;) {
      const found = this.requests.slice(from).find(isWanted)
      if (found) return found
      const left = until - performance.now()
      if (left <= 0) throw new Error(`${what} did not come within ${timeoutMs} ms.\n${this.describe(from)}`)
      await this.#waitForNext(left)
    }
  }

  /** What was asked and answered lately, for a failed test. */
  describe(from = 0): string {
    const recent = this.requests.slice(from).slice(-SHOWN_REQUESTS)
    const shown = recent.map(({ index, isMain, news }) => `#${index} main=${isMain}: ${news.slice(-SHOWN_CHARACTERS)}`)
    return `${this.requests.length - from} requests from ${from} on; the last:\n${shown.join('\n---\n')}`
  }

  async #waitForNext(timeoutMs: number): Promise<void> {
    const stop = new AbortController()
    const next = new Promise<void>((resolve) => {
      this.#waiters.add(resolve)
      stop.signal.addEventListener('abort', () => this.#waiters.delete(resolve))
    })
    await Promise.race([next, sleep(timeoutMs, undefined, { signal: stop.signal }).catch(() => {})])
    stop.abort()
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const path = new URL(request.url ?? '/', 'http://model').pathname
    if (request.method !== 'POST' || !this.isCall(path)) {
      this.others.push(`${request.method} ${path}`)
      return this.answerOther(path, response)
    }
    const body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as Json
    const facts = this.read(body)
    const seen: ModelRequest = {
      at: performance.now(),
      index: this.requests.length,
      headers: request.headers,
      body,
      ...facts,
    }
    this.requests.push(seen)
    for (const wake of this.#waiters) wake()
    this.#waiters.clear()
    this.#answering += 1
    try {
      const reply = seen.isMain ? await this.script(seen) : this.aside(seen)
      if (reply.delayMs !== undefined) await sleep(reply.delayMs)
      this.answer(reply, seen, response)
    } finally {
      this.#answering -= 1
      this.#busyAt = performance.now()
    }
  }

  protected abstract isCall(path: string): boolean
  protected abstract read(body: Json): Pick<ModelRequest, 'isMain' | 'news' | 'text'>
  /** The reply to a request that is not the conversation's. */
  protected abstract aside(request: ModelRequest): ModelReply
  protected abstract answer(reply: ModelReply, request: ModelRequest, response: ServerResponse): void
  protected abstract answerOther(path: string, response: ServerResponse): void
}

/** The Anthropic Messages API, as far as Claude Code uses it. */
export class MessagesModel extends ScriptedModel {
  #answers = 0

  protected override isCall(path: string): boolean {
    return path === '/v1/messages'
  }

  protected override read(body: Json): Pick<ModelRequest, 'isMain' | 'news' | 'text'> {
    const messages = (body.messages ?? []) as { role: string; content: unknown }[]
    const last = messages.findLastIndex(({ role }) => role === 'assistant')
    const join = (some: typeof messages) => some.map(({ content }) => toText(content)).join('\n')
    const isMain = Array.isArray(body.tools) && body.tools.length > 0
    return { isMain, news: join(messages.slice(last + 1)), text: join(messages) }
  }

  protected override aside(): ModelReply {
    return { text: '{"title":"scripted"}' }
  }

  protected override answer(reply: ModelReply, request: ModelRequest, response: ServerResponse): void {
    const number = ++this.#answers
    const tools = reply.tools ?? []
    const content: Json[] = [
      ...(reply.text === undefined ? [] : [{ type: 'text', text: reply.text }]),
      ...tools.map(({ name, input }, index) => {
        return { type: 'tool_use', id: `toolu_scripted_${number}_${index}`, name, input: input ?? {} }
      }),
    ]
    const message = {
      id: `msg_scripted_${number}`,
      type: 'message',
      role: 'assistant',
      model: request.body.model,
      content,
      stop_reason: tools.length > 0 ? 'tool_use' : 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 20, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
    }
    if (request.body.stream === true) {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'request-id': 'req_scripted' })
      response.end(streamMessage(message))
    } else sendJson(response, 200, message)
  }

  protected override answerOther(path: string, response: ServerResponse): void {
    if (path.endsWith('/count_tokens')) sendJson(response, 200, { input_tokens: 100 })
    else if (path === '/v1/models') sendJson(response, 200, { data: [], has_more: false })
    else sendJson(response, 404, { type: 'error', error: { type: 'not_found_error', message: 'not scripted' } })
  }
}

function streamMessage(message: Json & { content: Json[]; stop_reason: string }): string {
  const event = (type: string, data: Json) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`
  const blocks = message.content.map((block, index) => {
    const isText = block.type === 'text'
    const empty = isText ? { ...block, text: '' } : { ...block, input: {} }
    const delta = isText
      ? { type: 'text_delta', text: block.text }
      : { type: 'input_json_delta', partial_json: JSON.stringify(block.input) }
    return [
      event('content_block_start', { index, content_block: empty }),
      event('content_block_delta', { index, delta }),
      event('content_block_stop', { index }),
    ].join('')
  })
  return [
    event('message_start', { message: { ...message, content: [], stop_reason: null } }),
    ...blocks,
    event('message_delta', {
      delta: { stop_reason: message.stop_reason, stop_sequence: null },
      usage: { output_tokens: 20 },
    }),
    event('message_stop', {}),
  ].join('')
}

/** The OpenAI Responses API, as far as Codex uses it: streamed only. */
export class ResponsesModel extends ScriptedModel {
  #answers = 0

  protected override isCall(path: string): boolean {
    return path.endsWith('/responses')
  }

  protected override read(body: Json): Pick<ModelRequest, 'isMain' | 'news' | 'text'> {
    const items = (body.input ?? []) as Json[]
    const isOwn = ({ type, role }: Json) => role === 'assistant' || /_call$|^reasoning$/.test(String(type))
    const last = items.findLastIndex(isOwn)
    const join = (some: Json[]) => some.map((item) => toText(item.content ?? item.output)).join('\n')
    return { isMain: true, news: join(items.slice(last + 1)), text: join(items) }
  }

  protected override aside(): ModelReply {
    return { text: 'scripted' }
  }

  protected override answer(reply: ModelReply, _request: ModelRequest, response: ServerResponse): void {
    const number = ++this.#answers
    const id = `resp_scripted_${number}`
    const items = listItems(reply, number)
    const event = (type: string, data: Json) =>
      response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    event('response.created', { response: { id } })
    for (const [index, item] of items.entries()) {
      const isMessage = item.type === 'message'
      event('response.output_item.added', {
        output_index: index,
        item: isMessage ? { ...item, content: [] } : item,
      })
      if (isMessage) {
        event('response.output_text.delta', {
          output_index: index,
          item_id: item.id,
          content_index: 0,
          delta: reply.text,
        })
      }
      event('response.output_item.done', { output_index: index, item })
    }
    const usage = {
      input_tokens: 10,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 5,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 15,
    }
    event('response.completed', { response: { id, output: items, usage } })
    response.end()
  }

  protected override answerOther(_path: string, response: ServerResponse): void {
    sendJson(response, 404, { error: { message: 'not scripted' } })
  }
}

function listItems(reply: ModelReply, number: number): Json[] {
  const items: Json[] = (reply.tools ?? []).map(({ name, input, namespace }, index) => ({
    type: 'function_call',
    id: `fc_${number}_${index}`,
    call_id: `call_${number}_${index}`,
    name,
    ...(namespace === undefined ? {} : { namespace }),
    arguments: JSON.stringify(input ?? {}),
  }))
  if (reply.custom) {
    items.push({ type: 'custom_tool_call', id: `ct_${number}`, call_id: `call_${number}`, ...reply.custom })
  }
  if (reply.text !== undefined) {
    const content = [{ type: 'output_text', text: reply.text, annotations: [] }]
    items.push({ type: 'message', id: `msg_${number}`, role: 'assistant', content })
  }
  return items
}

/** The text of a message's or a tool result's content, however deep. */
function toText(content: unknown): string {
  if (typeof content === 'string') return content
  if (Array.isArray(content)) return content.map(toText).filter(Boolean).join('\n')
  if (typeof content !== 'object' || content === null) return ''
  const { text, content: inner, output } = content as Json
  return toText(text ?? inner ?? output)
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}
