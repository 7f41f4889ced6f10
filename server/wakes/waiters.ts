import { PatchcordError } from '../errors.ts'
import type { Wake, WakeTaker } from './bus.ts'
import type { TokenHolder } from './revocations.ts'

export interface WaitFor {
  agentId: string
  /** Whoever waits with it is sent away when it ends. */
  tokenId: string
  /** Only messages of this sender (name) or thread (slug) end the wait. */
  from?: string | undefined
  thread?: string | undefined
  timeoutMs: number
  signal: AbortSignal
}

/** `woken` carries the wake that was taken: who took it and then does not fetch it must pass it on (`WakeBus.passOn`). */
export type WaitEnd = { how: 'woken'; wake: Wake } | { how: 'timeout' | 'closing' | 'aborted' | 'revoked' }

export interface Wait {
  ended: Promise<WaitEnd>
  /** Ends the wait as 'aborted' unless it has ended already; how it ended. */
  cancel(): Promise<WaitEnd>
}

export interface Waiters extends WakeTaker, TokenHolder {
  /** Waits under way. */
  readonly count: number
  /** Waits for the first wake that fits, the time-out, shutdown or the signal's abort. Throws rate_limited over the cap. */
  start(request: WaitFor): Wait
  /** Ends every wait as 'closing', and each later one at once. */
  close(): void
}

interface Waiter extends WaitFor {
  readonly startedAt: number
  end(end: WaitEnd): void
}

/** The waits of `wait_for_message` on this instance. One wake ends one wait: the longest waiting one that it fits. */
export function createWaiters(limits: { waitersPerAgentMax: number }): Waiters {
  const waiting = createWaiting(limits.waitersPerAgentMax)
  let isClosing = false

  function start(request: WaitFor): Wait {
    const { promise, resolve } = promiseOf<WaitEnd>()
    const waiter: Waiter = {
      ...request,
      startedAt: performance.now(),
      end(end) {
        clearTimeout(timer)
        request.signal.removeEventListener('abort', onAbort)
        waiting.remove(waiter)
        resolve(end)
      },
    }
    const onAbort = () => waiter.end({ how: 'aborted' })
    waiting.add(waiter)
    const timer = setTimeout(() => waiter.end({ how: 'timeout' }), request.timeoutMs)
    request.signal.addEventListener('abort', onAbort)
    if (isClosing) waiter.end({ how: 'closing' })
    else if (request.signal.aborted) waiter.end({ how: 'aborted' })
    return {
      ended: promise,
      cancel() {
        waiter.end({ how: 'aborted' })
        return promise
      },
    }
  }

  return {
    get count() {
      return waiting.all().length
    },
    start,
    offer(wake: Wake) {
      const waiter = waiting.of(wake.toAgentId).find((each) => isFor(each, wake))
      waiter?.end({ how: 'woken', wake })
      return waiter !== undefined
    },
    close() {
      isClosing = true
      for (const waiter of waiting.all()) waiter.end({ how: 'closing' })
    },
    agentIds: waiting.agentIds,
    *tokenIds() {
      for (const { tokenId } of waiting.all()) yield tokenId
    },
    closeTokens(tokenIds, before = Number.POSITIVE_INFINITY) {
      const ended = new Set(tokenIds)
      for (const waiter of waiting.all()) {
        if (ended.has(waiter.tokenId) && waiter.startedAt < before) waiter.end({ how: 'revoked' })
      }
    },
  }
}

function isFor({ from, thread }: WaitFor, wake: Wake): boolean {
  return (from === undefined || from === wake.from) && (thread === undefined || thread === wake.thread)
}

/** Waiters by agent, those of one agent in the order they came. */
function createWaiting(perAgentMax: number) {
  const waitersOf = new Map<string, Set<Waiter>>()
  const of = (agentId: string) => [...(waitersOf.get(agentId) ?? [])]
  return {
    of,
    all: () => [...waitersOf.keys()].flatMap(of),
    agentIds: () => waitersOf.keys(),
    add(waiter: Waiter) {
      const waiters = waitersOf.get(waiter.agentId) ?? new Set()
      if (waiters.size >= perAgentMax) {
        throw new PatchcordError('rate_limited', `This agent already waits ${waiters.size} times.`, {
          hint: 'End another wait_for_message first.',
          retryAfterSeconds: 10,
        })
      }
      waitersOf.set(waiter.agentId, waiters.add(waiter))
    },
    remove(waiter: Waiter) {
      const waiters = waitersOf.get(waiter.agentId)
      waiters?.delete(waiter)
      if (waiters?.size === 0) waitersOf.delete(waiter.agentId)
    },
  }
}

/** Promise.withResolvers, which Node has only from 22 on. */
function promiseOf<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}
