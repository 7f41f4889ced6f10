import assert from 'node:assert/strict'
import { describe, type TestContext, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Phoenix } from '../../scripts/lib/phoenix.mjs'
import {
  type ChangeParts,
  changeMessage,
  closeMessage,
  type Push,
  replyTo,
  type ServerMessage,
  systemMessage,
} from '../../server/realtime/phoenix.ts'
import { findSerializer, type Serializer } from '../../server/realtime/serializers.ts'
import { readTranscripts, type Step, type Transcript } from './golden-transcripts.ts'

/**
 * The listener's codec and the server's share no code, and the recorded frames decide between them: what a client sent is
 * written by the one and read by the other, what the server sent is written by the other and read by the one. The listener
 * speaks 1.0.0 only.
 */

type Json = Record<string, unknown>
interface Message extends Omit<Push, 'payload'> {
  payload: Json
}

const v1 = findSerializer('1.0.0') as Serializer
const v2 = findSerializer('2.0.0') as Serializer
const NEVER = { heartbeatMs: 3_600_000, heartbeatReplyMs: 3_600_000, joinMs: 3_600_000, subscribedMs: 3_600_000 }

/** Of several clients each is a transcript of its own. */
const transcripts = readTranscripts().flatMap((transcript) => {
  const clientOf = (step: Step) => step.client ?? 1
  const clients = [...new Set(transcript.steps.map(clientOf))]
  return clients.map((client) => ({
    ...transcript,
    steps: transcript.steps.filter((step) => clientOf(step) === client),
  }))
})
const isV2 = ({ steps }: Transcript) => steps.some((step) => 'raw' in step && step.raw.includes('vsn=2.0.0'))
const sentBy = ({ steps }: Transcript) =>
  steps.flatMap((step) => ('send' in step && step.send === 'text' ? [step.raw] : []))
const receivedBy = ({ steps }: Transcript) =>
  steps.flatMap((step) => ('expect' in step && step.expect === 'text' ? [step.raw] : []))

/** A recorded frame read by JSON alone; null: it is no message. */
function readFrame(raw: string, isArray: boolean): Message | null {
  let frame: unknown
  try {
    frame = JSON.parse(raw)
  } catch {
    return null
  }
  if (isArray) {
    if (!Array.isArray(frame) || frame.length !== 5) return null
    const [joinRef, ref, topic, event, payload] = frame
    return { joinRef, ref, topic, event, payload }
  }
  const { join_ref: joinRef = null, ref, topic, event, payload } = (frame ?? {}) as Json & { join_ref?: string }
  if (topic === undefined || event === undefined || payload === undefined || ref === undefined) return null
  return { joinRef, ref, topic, event, payload } as Message
}

/** What the server would send to say the same, made by its own constructors; null: it has none for it. */
function buildMessage({ joinRef, ref, topic, event, payload }: Message): ServerMessage | null {
  if (event === 'phx_reply') {
    const push: Push = { joinRef, ref, topic, event: '', payload: null }
    return replyTo(push, payload.status as 'ok', payload.response)
  }
  if (event === 'phx_close') return closeMessage(topic, ref)
  if (event === 'system') {
    const { extension, status, message } = payload as Record<string, string>
    return systemMessage({ topic, joinRef }, extension as 'system', status as 'ok', message as string)
  }
  if (event === 'postgres_changes') {
    const { data, ids } = payload as { data: Omit<ChangeParts, 'ids'> & { commit_timestamp: string }; ids: number[] }
    return { ...changeMessage(topic, { ...data, committedAt: data.commit_timestamp, ids }), joinRef }
  }
  return null
}

function setUp(context: TestContext, times = {}) {
  const sent: string[] = []
  const events: string[] = []
  const phoenix = new Phoenix(
    {
      send: (text) => sent.push(text),
      onJoined: (topic) => events.push(`joined ${topic}`),
      onFailure: (reason) => events.push(`failure ${reason}`),
      onSystem: (topic) => events.push(`system ${topic}`),
      onMessage: (topic, event) => events.push(`${event} ${topic}`),
    },
    { ...NEVER, ...times },
  )
  context.after(() => phoenix.end())
  return { phoenix, sent, events }
}

/** What a listener that joined with ref 1 must make of each frame; null: nothing. */
function createReader({ topic: joined, payload }: Message) {
  const { postgres_changes: changes = [] } = (payload.config ?? {}) as { postgres_changes?: unknown[] }
  let isConfirmed = changes.length === 0
  return ({ ref, topic, event, payload }: Message): string | null => {
    if (topic !== joined) return null
    const { status, response, message, extension } = payload as Record<string, string> & { response?: Json | string }
    if (event === 'phx_reply' && ref === '1') {
      if (status === 'ok') return isConfirmed ? `joined ${topic}` : null
      return `failure join refused: ${typeof response === 'string' ? response : response?.reason}`
    }
    if (event === 'phx_close' && (ref === '1' || ref === null)) return 'failure topic ended (phx_close)'
    if (event !== 'system') return event.startsWith('phx_') ? null : `${event} ${topic}`
    if (status === 'error') return `failure system: ${message}`
    if (isConfirmed || extension !== 'postgres_changes') return `system ${topic}`
    isConfirmed = true
    return `joined ${topic}`
  }
}

describe('both codecs, on the recorded frames', () => {
  test('what a client sent is read by the server as it stands, and what is no message is dropped', () => {
    const counts = { '1.0.0': 0, '2.0.0': 0, dropped: 0 }
    for (const transcript of transcripts) {
      const serializer = isV2(transcript) ? v2 : v1
      for (const raw of sentBy(transcript)) {
        assert.deepEqual(serializer.decode(raw), readFrame(raw, serializer === v2), `${transcript.name}: ${raw}`)
        counts[serializer.decode(raw) ? (serializer.version as '1.0.0') : 'dropped']++
      }
    }
    assert.ok(counts['1.0.0'] > 80 && counts['2.0.0'] > 3 && counts.dropped > 3, JSON.stringify(counts))
  })

  test('what the server sent is written by it again to the letter, and says the same in the other serializer', () => {
    const counts: Record<string, number> = {}
    for (const transcript of transcripts) {
      const [own, other] = isV2(transcript) ? [v2, v1] : [v1, v2]
      for (const raw of receivedBy(transcript)) {
        const recorded = readFrame(raw, own === v2) as Message
        const message = buildMessage(recorded)
        if (!message) continue
        assert.equal(own.encode(message), raw, transcript.name)
        const translated = readFrame(other.encode(message) as string, other === v2)
        const joinRef = other === v1 ? null : message.joinRef
        assert.deepEqual(translated, { ...recorded, joinRef }, transcript.name)
        const kind = `${own.version} ${recorded.event}`
        counts[kind] = (counts[kind] ?? 0) + 1
      }
    }
    const kinds = ['phx_reply', 'phx_close', 'system', 'postgres_changes']
    for (const version of ['1.0.0', '2.0.0']) {
      for (const kind of kinds) assert.ok((counts[`${version} ${kind}`] ?? 0) > 0, `no ${kind} in ${version}`)
    }
  })

  test('a broadcast is written as it was recorded: as text in 1.0.0, in binary in 2.0.0', () => {
    const texts = transcripts.filter((each) => !isV2(each)).flatMap(receivedBy)
    let count = 0
    for (const raw of texts) {
      const { topic, event } = readFrame(raw, false) as Message
      if (event !== 'broadcast') continue
      const payload = raw.slice(raw.indexOf('"payload":') + '"payload":'.length, -1)
      assert.equal(v1.encode({ joinRef: null, ref: null, topic, event, payload }), raw)
      count++
    }
    assert.ok(count > 5)
    const binaries = transcripts.flatMap(({ steps }) =>
      steps.flatMap((step) => ('expect' in step && step.expect === 'binary' ? [step.hex] : [])),
    )
    assert.ok(binaries.length > 0)
    for (const hex of binaries) {
      const bytes = Buffer.from(hex, 'hex')
      let offset = 5
      const [topic = '', event = '', meta = ''] = [...bytes.subarray(1, 4)].map((length) => {
        offset += length
        return bytes.toString('utf8', offset - length, offset)
      })
      const broadcast = { event, meta, payload: bytes.toString('utf8', offset) }
      const frame = v2.encode({ joinRef: null, ref: null, topic, event: 'broadcast', payload: '', broadcast })
      assert.equal((frame as Buffer).toString('hex'), hex)
    }
  })

  test('the listener writes joins and heartbeats that the server reads as the recorded ones', async (context) => {
    let count = 0
    for (const transcript of transcripts.filter((each) => !isV2(each))) {
      for (const raw of sentBy(transcript)) {
        const recorded = v1.decode(raw) as Message | null
        if (recorded?.event !== 'phx_join' || recorded.ref !== '1' || recorded.joinRef !== '1') continue
        const { config, access_token: token, ...rest } = recorded.payload as { config: Json; access_token: string }
        if (Object.keys(rest).length > 0) continue
        const { phoenix, sent } = setUp(context)
        phoenix.join(recorded.topic, config, token)
        assert.deepEqual(sent, [raw], transcript.name)
        assert.deepEqual(v1.decode(sent[0] as string), recorded, transcript.name)
        count++
      }
    }
    assert.ok(count > 40, `${count} joins`)
    const { phoenix, sent } = setUp(context, { heartbeatMs: 1 })
    phoenix.start()
    while (sent.length === 0) await sleep(1)
    const recorded = transcripts.flatMap(sentBy).find((raw) => raw.startsWith('{') && raw.includes('"heartbeat"'))
    const { ref, ...beat } = v1.decode(recorded ?? '') as Push
    assert.deepEqual(v1.decode(sent[0] as string), { ...beat, ref: '1' })
    assert.equal(ref, '2')
  })

  test('the listener reads what the server sent for what it is, in the order recorded, until the topic ends', (context) => {
    const kinds: Record<string, number> = {}
    for (const transcript of transcripts.filter((each) => !isV2(each))) {
      const joins = sentBy(transcript).map((raw) => v1.decode(raw) as Message | null)
      const join = joins.find((push) => push?.event === 'phx_join')
      if (join?.ref !== '1') continue
      const { phoenix, events } = setUp(context)
      phoenix.join(join.topic, (join.payload as { config?: Json }).config ?? {}, 'jwt')
      const read = createReader(join)
      const expected: string[] = []
      for (const raw of receivedBy(transcript)) {
        const meaning = read(readFrame(raw, false) as Message)
        // In the words of its log, which cut what is long.
        const [said] = (meaning ?? '').split('\n')
        if (meaning !== null && !expected.at(-1)?.startsWith('failure')) expected.push(said as string)
        phoenix.receive(raw)
      }
      assert.equal(events.length, expected.length, transcript.name)
      for (const [index, said] of expected.entries()) {
        assert.ok(events[index]?.startsWith(said.slice(0, 100)), `${transcript.name}: ${events[index]} for ${said}`)
        const kind = said.split(' ')[0] as string
        kinds[kind] = (kinds[kind] ?? 0) + 1
      }
    }
    for (const kind of ['joined', 'failure', 'system', 'broadcast', 'postgres_changes']) {
      assert.ok((kinds[kind] ?? 0) > 2, `${kind}: ${kinds[kind]}`)
    }
  })

  test('the listener takes no frame of 2.0.0 for one of its own', (context) => {
    const frames = transcripts.filter(isV2).flatMap(receivedBy)
    assert.ok(frames.length > 5)
    const { phoenix, events } = setUp(context)
    for (const topic of ['realtime:m', 'realtime:ns:ns-a']) phoenix.join(topic, {}, 'jwt')
    for (const raw of frames) phoenix.receive(raw)
    assert.deepEqual(events, [])
  })
})
