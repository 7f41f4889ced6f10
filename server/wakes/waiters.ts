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
  const waitersOf = new Map<string, Set<Waiter>>()
  let isClosing = false

  function add(waiter: Waiter): void {
    const waiters = waitersOf.get(waiter.agentId) ?? new Set()
    if (waiters.size >= limits.waitersPerAgentMax) {
      throw new PatchcordError('rate_limited', `This agent already waits ${waiters.size} times.`, {
        hint: 'End another wait_for_message first.',
        retryAfterSeconds: 10,
      })
    }
    waitersOf.set(waiter.agentId, waiters.add(waiter))
  }

  function remove(waiter: Waiter): void {
    const waiters = waitersOf.get(waiter.agentId)
    waiters?.delete(waiter)
    if (waiters?.size === 0) waitersOf.delete(waiter.agentId)
  }

  const all = () => [...waitersOf.values()].flatMap((waiters) => [...waiters])

  function* tokenIds(): Iterable<string> {
    for (const waiters of waitersOf.values()) for (const { tokenId } of waiters) yield tokenId
  }

  return {
    start(request) {
      const { promise, resolve } = promiseOf<WaitEnd>()
      const waiter: Waiter = {
        ...request,
        startedAt: performance.now(),
        end(end) {
          clearTimeout(timer)
          request.signal.removeEventListener('abort', onAbort)
          remove(waiter)
          resolve(end)
        },
      }
      const onAbort = () => waiter.end({ how: 'aborted' })
      add(waiter)
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
    },
    offer(wake: Wake) {
      for (const waiter of waitersOf.get(wake.toAgentId) ?? []) {
        if (waiter.from !== undefined && waiter.from !== wake.from) continue
        if (waiter.thread !== undefined && waiter.thread !== wake.thread) continue
        waiter.end({ how: 'woken', wake })
        return true
      }
      return false
    },
    close() {
      isClosing = true
      for (const waiter of all()) waiter.end({ how: 'closing' })
    },
    agentIds: () => waitersOf.keys(),
    tokenIds,
    closeTokens(tokenIds, before = Number.POSITIVE_INFINITY) {
      if (waitersOf.size === 0 || tokenIds.length === 0) return
      const ended = new Set(tokenIds)
      for (const waiter of all()) {
        if (ended.has(waiter.tokenId) && waiter.startedAt < before) waiter.end({ how: 'revoked' })
      }
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
