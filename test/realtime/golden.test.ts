import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { sendMessage } from '../../server/domain/messages.ts'
import { createRealtimeSource } from '../../server/domain/realtime.ts'
import { createTicketSigner, type TicketClaims, type TicketSigner } from '../../server/domain/tickets.ts'
import { createBus } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../helpers/seed.ts'
import { type Endpoint, inSeconds, startEndpoint } from './endpoint-helper.ts'
import { GoldenClient, type Received } from './golden-client.ts'
import { TABLE } from './golden-table.ts'
import { readTranscripts, type Step, type Token, type Transcript } from './golden-transcripts.ts'

/** What is delivered for an insert has come by then. */
const QUIET_MS = 200
/** Time enough for a transcript to be replayed up to where its token must have expired. */
const SOON_SECONDS = 3

/** One transcript of a client and the real Supabase Realtime, with the client's side done again against ours. */
class Replay {
  readonly #clients = new Map<number, { connection: GoldenClient; key: string }>()
  readonly #endpoint: Endpoint
  readonly #agents: Record<string, SeededAgent>
  readonly #sender: SeededAgent
  readonly #stranger: TicketSigner
  readonly #transcript: Transcript
  readonly #minted = new Map<string, { jwt: string; exp: number }>()
  readonly #steps: Step[]
  readonly #ids = { recorded: new Map<string, string>(), ours: new Map<string, string>() }

  constructor(
    endpoint: Endpoint,
    agents: Record<'alice' | 'bob' | 'carol', SeededAgent>,
    stranger: TicketSigner,
    transcript: Transcript,
  ) {
    this.#endpoint = endpoint
    this.#agents = { 'ns-a': agents.alice, 'ns-b': agents.bob }
    this.#sender = agents.carol
    this.#stranger = stranger
    this.#transcript = transcript
    this.#steps = changeSteps(transcript)
  }

  async run(): Promise<void> {
    try {
      for (const step of this.#steps) {
        if ('expect' in step) await this.#expect(step)
        else if ('do' in step) await this.#do(step)
        else await this.#send(step)
      }
    } finally {
      for (const { connection } of this.#clients.values()) connection.destroy()
    }
  }

  #client({ client = 1 }: Step): { connection: GoldenClient; key: string } {
    const known = this.#clients.get(client) ?? { connection: new GoldenClient(this.#endpoint.port), key: '' }
    this.#clients.set(client, known)
    return known
  }

  async #do(step: Extract<Step, { do: string }>): Promise<void> {
    if (step.do === 'insert') {
      const to = this.#agents[step.to]?.agent as string
      await sendMessage(this.#sender.scope, { to, content: 'hi' })
      return
    }
    const { exp } = this.#minted.get(step.token) as { exp: number }
    while (Date.now() / 1000 <= exp) await sleep(20)
  }

  async #send(step: Extract<Step, { send: string }>): Promise<void> {
    const client = this.#client(step)
    const { connection } = client
    if (step.send === 'binary') return connection.binary(Buffer.from(step.hex, 'hex'))
    if (step.send === 'close') {
      await this.#requireSilence(connection)
      return connection.close(step.code)
    }
    const text = await this.#fill(this.#toOurs(step.raw))
    if (step.send === 'http') {
      client.key = /^Sec-WebSocket-Key: (.*)$/m.exec(text)?.[1]?.trim() ?? ''
      const host = `Host: 127.0.0.1:${this.#endpoint.port}`
      connection.write(`${text.replace(/^Host: 127\.0\.0\.1:\d+/m, host)}\r\n\r\n`)
    } else if (step.send === 'fragments') connection.fragments(text, Buffer.from(step.ping, 'hex'))
    else if (step.send === 'unmasked') connection.unmasked(text)
    else connection.text(text)
  }

  /** The answer to a heartbeat comes after all other answers: what the recorded server did not send, ours does not. */
  async #requireSilence(connection: GoldenClient): Promise<void> {
    if (this.#steps.some((step) => 'do' in step)) await sleep(QUIET_MS)
    const isArray = this.#steps.some((step) => 'send' in step && step.send === 'http' && step.raw.includes('vsn=2.0.0'))
    const response = '{"status":"ok","response":{}}'
    connection.text(
      isArray
        ? '[null,"quiet","phoenix","heartbeat",{}]'
        : '{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"quiet"}',
    )
    const raw = isArray
      ? `[null,"quiet","phoenix","phx_reply",${response}]`
      : `{"ref":"quiet","event":"phx_reply","topic":"phoenix","payload":${response}}`
    assert.deepEqual(await connection.next(), { kind: 'text', raw })
  }

  async #expect({ client, expect, ...recorded }: Extract<Step, { expect: string }>): Promise<void> {
    const { connection, key } = this.#client({ client, expect, ...recorded } as Step)
    const received = await connection.next()
    const ours = { kind: expect, ...recorded } as Received
    if (ours.kind === 'text') ours.raw = this.#toOurs(ours.raw)
    if (received.kind === 'http' && /^HTTP\/1\.1 101 /.test(received.raw)) checkAccept(received.raw, key)
    assert.deepEqual(this.#normalise(received, this.#ids.ours), this.#normalise(ours, this.#ids.recorded))
  }

  #toOurs(text: string): string {
    const named = TABLE.ours.reduce((all, { from, to }) => all.replace(from, to), text)
    return named.replace(/ns:(ns-\w)/g, (_, name: string) => {
      const { namespaceId, agentId } = this.#agents[name] as SeededAgent
      return `agent:${namespaceId}:${agentId}`
    })
  }

  async #fill(text: string): Promise<string> {
    for (const [, name = ''] of text.matchAll(/\{\{(t\d+)\}\}/g)) await this.#mint(name)
    return text
      .replace(/\{\{(t\d+)\}\}/g, (_, name: string) => this.#minted.get(name)?.jwt as string)
      .replace(/\{\{since\}\}/, String(Date.now() - 60_000))
      .replace(/\{\{(\d+) characters\}\}/, (_, count: string) => 'x'.repeat(TABLE.characters[count] as number))
  }

  /** With the claims' relation to the moment and to the namespace; the recorded role of users is our tickets'. */
  async #mint(name: string): Promise<void> {
    if (this.#minted.has(name)) return
    const { number, tokens } = this.#transcript
    const { claims, signedBy } = tokens[name] as Token
    const { namespace_ids: namespaces, ...rest } = claims
    for (const time of ['iat', 'exp', 'nbf']) {
      if (rest[time] !== undefined)
        rest[time] = inSeconds(0) + (rest[time] === 'soon' ? SOON_SECONDS : Number(rest[time]))
    }
    if (rest.role === 'authenticated') rest.role = 'patchcord_ticket'
    const agent = Array.isArray(namespaces) ? this.#agents[namespaces[0]] : undefined
    if (agent) Object.assign(rest, { ns: agent.namespaceId, agent: agent.agentId, token: agent.tokenId })
    else if (number in TABLE.namedKeys) rest.token = this.#agents['ns-a']?.tokenId
    const signer = signedBy === 'us' ? this.#endpoint.signer : this.#stranger
    this.#minted.set(name, { jwt: await signer.sign(rest as TicketClaims), exp: Number(rest.exp) })
  }

  #normalise(received: Received, ids: Map<string, string>): unknown {
    if (received.kind === 'http') return normaliseHttp(received)
    if (received.kind === 'binary') return { kind: 'binary', parts: readBroadcast(Buffer.from(received.hex, 'hex')) }
    return received.kind === 'text' ? { kind: 'text', raw: numberIds(normaliseText(received.raw), ids) } : received
  }
}

function checkAccept(raw: string, key: string): void {
  const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
  assert.ok(raw.toLowerCase().includes(`sec-websocket-accept: ${accept.toLowerCase()}`))
}

function normaliseText(text: string): string {
  return TABLE.texts.reduce((all, { from, to }) => all.replace(from, to as string), text)
}

/** Ids of bindings, which are any numbers, by the order in which they come up. */
function numberIds(text: string, known: Map<string, string>): string {
  const name = (id: string) => {
    if (!known.has(id)) known.set(id, `binding ${known.size + 1}`)
    return known.get(id) as string
  }
  return text
    .replace(/"id":(\d+)/g, (_, id: string) => `"id":${name(id)}`)
    .replace(/"ids":\[([\d,]+)\]/g, (_, list: string) => `"ids":[${list.split(',').map(name)}]`)
}

function normaliseHttp({ raw, body = '' }: { raw: string; body?: string }) {
  const [status, ...lines] = raw.split('\r\n')
  const headers = lines
    .map((line) => {
      const [name = '', ...value] = line.split(': ')
      return [name.toLowerCase(), value.join(': ')] as const
    })
    .filter(([name]) => !(name in TABLE.headers))
  return { status, headers: Object.fromEntries(headers.sort(([a], [b]) => (a < b ? -1 : 1))), body }
}

/** A binary broadcast as the text of a 1.0.0 frame has it, so that the same normalisations apply; lengths must add up. */
function readBroadcast(bytes: Buffer) {
  const [kind, topicLength = 0, eventLength = 0, metaLength = 0, encoding] = bytes
  let offset = 5
  const [topic = '', event = '', meta = ''] = [topicLength, eventLength, metaLength].map((length) => {
    offset += length
    return bytes.toString('utf8', offset - length, offset)
  })
  const payload = `{"event":"${event}","meta":${meta},"payload":${bytes.toString('utf8', offset)},"type":"broadcast"}`
  return { kind, encoding, topic: topic.split(':')[0], payload: normaliseText(payload) }
}

/** The steps without what TABLE leaves out, and with what it changes. */
function changeSteps({ number, steps }: Transcript): Step[] {
  const changes = TABLE.steps.filter(({ transcript }) => transcript === number)
  return steps.flatMap((step): Step[] => {
    if (!('expect' in step) || step.expect !== 'text') return [step]
    const change = changes.find((each) => each.step.test(step.raw))
    if (!change) return [step]
    return change.becomes === undefined ? [] : [{ ...step, raw: step.raw.replace(change.step, change.becomes) }]
  })
}

describe('our endpoint answers as the recorded Supabase Realtime did', () => {
  let database: TestDatabase
  let stranger: TicketSigner
  const transcripts = readTranscripts()
  before(async () => {
    database = await createTestDatabase()
    stranger = await createTicketSigner({ algorithm: 'HS256', secret: 'a secret that is not the one of the endpoint' })
  })
  after(() => database.drop())

  test('every transcript that is left out exists, and most are not', () => {
    const names = transcripts.map(({ number }) => number)
    assert.deepEqual(
      Object.keys(TABLE.leftOut).filter((name) => !names.includes(name)),
      [],
    )
    assert.ok(Object.keys(TABLE.unfit).every((name) => !names.includes(name)))
    assert.ok(transcripts.length > 75 && Object.keys(TABLE.leftOut).length < 5)
  })

  for (const [index, transcript] of transcripts.entries()) {
    const { number, name } = transcript
    if (number in TABLE.leftOut) continue
    test(name, async () => {
      const source = createRealtimeSource(database.api)
      const times = { changesPollMs: 60_000, ...(number === '89' ? { idleMs: 700 } : {}) }
      const endpoint = await startEndpoint({ source, times, limits: TABLE.limits[number] ?? {} })
      try {
        const bus = createBus(createWaiters(DEFAULT_LIMITS))
        bus.addSink(endpoint.hub)
        const agents = await seed(database, `golden-${index}`, ['alice', 'bob', 'carol'], { bus })
        await new Replay(endpoint, agents, stranger, transcript).run()
      } finally {
        await endpoint.stop()
      }
      assert.deepEqual(endpoint.errors, [])
    })
  }
})
