import { randomUUID } from 'node:crypto'
import type { Channel, ChannelHandlers } from '../db/listen.ts'
import type { Wake, WakeBus } from './bus.ts'

const CHANNEL = 'patchcord_wakes'
/** While Postgres is away this many wakes are kept for the other instances; their read-back finds the rest. */
const QUEUE_MAX = 10_000

export interface PeersOptions {
  /** Opens a channel that every instance hears: LISTEN and NOTIFY (db/listen). */
  open: (name: string, handlers: ChannelHandlers) => Promise<Channel>
  bus: WakeBus
  /** After every (re)connection: wakes of other instances may have been missed. */
  onListening: () => void
  log: { warn(details: object, message: string): void }
  /** Told how each NOTIFY went. */
  ran?: (isOk: boolean) => void
}

export interface Peers {
  /** Wakes that the other instances have not been told of yet. */
  readonly waiting: number
  close(): Promise<void>
}

/**
 * Tells the other instances of wakes, and hears theirs. One NOTIFY is under way at a time and carries all that has gathered
 * meanwhile: a NOTIFY for each message would hold Postgres' commit lock and cost most of the insert rate.
 */
export async function startPeers(options: PeersOptions): Promise<Peers> {
  const instance = randomUUID()
  let queue: Wake[] = []
  let flushing: Promise<void> | null = null

  const channel = await options.open(CHANNEL, {
    onPayload(payload) {
      const { from, wakes } = JSON.parse(payload) as { from: string; wakes: Wake[] }
      if (from !== instance) options.bus.receive(wakes.map(markPeers))
    },
    onListening: options.onListening,
  })

  async function flush(): Promise<void> {
    while (queue.length > 0) {
      const { payload, count } = pack(instance, queue, channel.payloadBytesMax)
      queue = queue.slice(count)
      try {
        await channel.notify(payload)
        options.ran?.(true)
      } catch (error) {
        options.ran?.(false)
        options.log.warn(
          { err: error, wakes: count },
          'other instances were not notified; their read-back will find these wakes',
        )
      }
    }
    flushing = null
  }

  options.bus.onPublish((wakes) => {
    queue.push(...wakes.slice(0, QUEUE_MAX - queue.length))
    flushing ??= flush()
  })
  return {
    get waiting() {
      return queue.length
    },
    async close() {
      await flushing
      await channel.close()
    },
  }
}

/** One of an instance of an earlier version says nothing of its origin. */
function markPeers(wake: Wake): Wake {
  return wake.origin ? { ...wake, origin: { ...wake.origin, isPeers: true } } : wake
}

/** As many wakes as fit one payload, at least one. */
export function pack(instance: string, wakes: Wake[], bytesMax: number): { payload: string; count: number } {
  let bytes = JSON.stringify({ from: instance, wakes: [] }).length
  let count = 0
  for (const wake of wakes) {
    bytes += Buffer.byteLength(JSON.stringify(wake)) + 1
    if (count > 0 && bytes > bytesMax) break
    count += 1
  }
  return { payload: JSON.stringify({ from: instance, wakes: wakes.slice(0, count) }), count }
}
