import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

/** Agents who send as agents do: seldom each, on connections that stay open, and all together often enough to be measured. */

export interface Sends {
  /** Of each send, from its first byte to the last of its answer. */
  ms: number[]
  refused: Record<string, number>
  /** How late this process itself was with each send: beyond some ms, the machine was short of processors. */
  lateMs: number[]
}

export class Honest {
  readonly #url: string
  readonly #agent = new Agent({ keepAlive: true })
  readonly #pairs: { token: string; to: string }[]
  #next = 0

  constructor(url: string, pairs: { token: string; to: string }[]) {
    this.#url = url
    this.#pairs = pairs
  }

  /** So many sends in a second, evenly, whether or not the last was answered. */
  async send(ms: number, perSecond: number): Promise<Sends> {
    const sends: Sends = { ms: [], refused: {}, lateMs: [] }
    const running: Promise<void>[] = []
    const startedAt = performance.now()
    for (let index = 0; (index / perSecond) * 1_000 < ms; index++) {
      const dueAt = startedAt + (index / perSecond) * 1_000
      await sleep(Math.max(0, dueAt - performance.now()))
      sends.lateMs.push(performance.now() - dueAt)
      running.push(this.#sendOne(sends))
    }
    await Promise.all(running)
    return sends
  }

  /** Short waits for messages, a few at once: for the code that serves them to be compiled. */
  async wait(count: number): Promise<void> {
    const call = { name: 'wait_for_message', arguments: { timeout_seconds: 1, from: this.#pairs[0]?.to } }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: call })
    for (let done = 0; done < count; done += this.#pairs.length) {
      await Promise.all(this.#pairs.map(({ token }) => this.#post('/mcp', token, body)))
    }
  }

  close(): void {
    this.#agent.destroy()
  }

  async #sendOne(sends: Sends): Promise<void> {
    const { token, to } = this.#pairs[this.#next++ % this.#pairs.length] as { token: string; to: string }
    const startedAt = performance.now()
    const outcome = await this.#post(
      '/api/messages',
      token,
      JSON.stringify({ to, content: 'how is it going?', kind: 'report' }),
    )
    if (outcome === '201') sends.ms.push(performance.now() - startedAt)
    else sends.refused[outcome] = (sends.refused[outcome] ?? 0) + 1
  }

  /** The status, or the code of what kept it from coming. */
  #post(path: string, token: string, body: string): Promise<string> {
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'content-length': body.length,
    }
    return new Promise((resolve) => {
      const outgoing = request(new URL(path, this.#url), { method: 'POST', agent: this.#agent, headers })
      outgoing.on('response', (response) => response.resume().on('end', () => resolve(String(response.statusCode))))
      outgoing.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
      outgoing.setTimeout(30_000, () => outgoing.destroy(new Error('no answer in 30 s')))
      outgoing.end(body)
    })
  }
}
