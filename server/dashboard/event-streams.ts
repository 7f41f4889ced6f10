import type { ServerResponse } from 'node:http'
import { PatchcordError } from '../errors.ts'
import type { WakeBus } from '../wakes/bus.ts'

const PER_SESSION_MAX = 5
/** Whoever signs in many times takes no more of them all. */
const PER_PERSON_MAX = 20
const ALL_MAX = 1_000
/** Many messages in a moment are one event. */
const GATHER_MS = 100
const HEARTBEAT_MS = 15_000
const CHECK_MS = 30_000
/** Time-outs and proxies end connections; browsers come back after this. */
const RETRY_MS = 2_000

export interface EventStreamsOptions {
  bus: Pick<WakeBus, 'watch'>
  limits?: { perSessionMax?: number; perPersonMax?: number; allMax?: number }
  times?: { gatherMs?: number; heartbeatMs?: number; checkMs?: number }
}

export interface Reader {
  sessionId: string
  personId: string
}

export interface OpenStream extends Reader {
  namespaceId: string
  /** Throws when the person may not see the namespace any more; a fault that passes must be `unavailable`. */
  check: () => Promise<unknown>
}

export interface EventStreams {
  /** Throws rate_limited when this session, this person, or all together, have too many. */
  reserve(reader: Reader): void
  /** Writes events to a response whose head was sent, until it closes, its check fails, or all are closed. */
  open(response: ServerResponse, stream: OpenStream): void
  count(): number
  close(): void
}

/**
 * Server-sent events of the dashboard: that something came in a namespace, never what. A reader that does not take them is owed one
 * event and no more.
 */
export function createEventStreams(options: EventStreamsOptions): EventStreams {
  const { perSessionMax = PER_SESSION_MAX, perPersonMax = PER_PERSON_MAX, allMax = ALL_MAX } = options.limits ?? {}
  const open = new Map<ServerResponse, Reader & { end: () => void }>()
  let isClosed = false

  function reserve({ sessionId, personId }: Reader): void {
    const ofPerson = [...open.values()].filter((each) => each.personId === personId)
    const ofSession = ofPerson.filter((each) => each.sessionId === sessionId)
    const isRoom = ofSession.length < perSessionMax && ofPerson.length < perPersonMax && open.size < allMax
    if (!isClosed && isRoom) return
    throw new PatchcordError('rate_limited', 'Too many pages of yours are live already.', {
      hint: 'Close one of them; this one is refreshed now and then.',
      retryAfterSeconds: 30,
    })
  }

  return {
    reserve,
    open(response, stream) {
      const end = startStream(response, stream, options)
      open.set(response, { sessionId: stream.sessionId, personId: stream.personId, end })
      response.once('close', () => {
        end()
        open.delete(response)
      })
      if (isClosed || response.destroyed) end()
    },
    count: () => open.size,
    close() {
      isClosed = true
      for (const { end } of open.values()) end()
    },
  }
}

/** What ends it gives back; to end twice is to end once. */
function startStream(
  response: ServerResponse,
  stream: OpenStream,
  { bus, times = {} }: EventStreamsOptions,
): () => void {
  const { gatherMs = GATHER_MS, heartbeatMs = HEARTBEAT_MS, checkMs = CHECK_MS } = times
  let isOwed = false
  let gathering: NodeJS.Timeout | undefined
  let isChecking = false

  const send = (text: string): void => void (response.writableNeedDrain || response.write(text))
  const tell = (): void => {
    gathering = undefined
    if (response.writableNeedDrain) isOwed = true
    else response.write('event: message\ndata: new\n\n')
  }
  const onDrain = (): void => {
    if (isOwed) tell()
    isOwed = false
  }
  async function check(): Promise<void> {
    if (isChecking) return
    isChecking = true
    try {
      await stream.check()
    } catch (error) {
      if (!(error instanceof PatchcordError && error.code === 'unavailable')) end()
    } finally {
      isChecking = false
    }
  }

  const unwatch = bus.watch(stream.namespaceId, () => {
    gathering ??= setTimeout(tell, gatherMs)
  })
  const heartbeat = setInterval(() => send(': here\n\n'), heartbeatMs)
  const checking = setInterval(check, checkMs)
  response.on('drain', onDrain)
  response.write(`retry: ${RETRY_MS}\n\n`)

  function end(): void {
    unwatch()
    clearTimeout(gathering)
    clearInterval(heartbeat)
    clearInterval(checking)
    response.off('drain', onDrain)
    // Whoever takes nothing would never come to the end, and hold its place and a server that closes.
    if (response.writableNeedDrain) response.destroy()
    else response.end()
  }
  return end
}
