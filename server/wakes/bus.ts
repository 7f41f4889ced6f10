/** One recipient of one committed message: names for people, UUIDs for routing, never the text. JSON types only. */
export interface Wake {
  id: string
  toNamespaceId: string
  toAgentId: string
  from: string
  to: string
  namespace: string
  kind: string
  urgency: string
  thread: string | null
  /** For logs and counts of servers: never part of what a listener is sent. */
  origin?: WakeOrigin
}

/** The request that a wake comes from. */
export interface WakeOrigin {
  trace: string
  /** When it was published, in milliseconds of Unix time. */
  at: number
  /** Another instance published it. */
  isPeers?: boolean
}

/** Hears what happens to wakes here, to count and to log it; it must not throw. */
export interface WakeObserver {
  /** One that was not delivered here before; `isOwn`: by a message that this instance has committed. */
  came(wake: Wake | FoundWake, isOwn: boolean): void
  taken(wake: Wake): void
  /** Handed to so many joined topics' sockets. */
  delivered(wake: Wake, sockets: number): void
}

/** A wake that read-back found, and when it came due. */
export interface FoundWake extends Wake {
  wakeAt: string
  /** It came due once before: the namespace was paused meanwhile, and whoever heard of it then may have been told to forget it. */
  isRepeated: boolean
}

/** Where wakes of this instance end: the realtime hub is one. */
export interface WakeSink {
  deliver(wake: Wake): void
  /** UUIDs of the agents that listen here. */
  agentIds(): Iterable<string>
}

/** Someone who may take a wake before the sinks see it: the waiters of `wait_for_message`. */
export interface WakeTaker {
  offer(wake: Wake): boolean
  agentIds(): Iterable<string>
}

export interface WakeBus {
  /**
   * Wakes of messages that this instance has just committed, for a request of this trace: delivered here, and told to the other
   * instances.
   */
  publish(wakes: Wake[], trace?: string): void
  /** Wakes learned from another instance or from a read-back. Those already delivered here are left out. */
  receive(wakes: (Wake | FoundWake)[]): void
  /** A wake that a waiter took and did not fetch: to the sinks only. */
  passOn(wake: Wake): void
  addSink(sink: WakeSink): void
  /** UUIDs of the agents with a listener or a waiter on this instance. */
  listeningAgentIds(): Set<string>
  /** Called with what `publish` was given, for the other instances. */
  onPublish(tell: (wakes: Wake[]) => void): void
  /**
   * Called for each wake of a namespace (its UUID) that comes by here, once, whoever takes it; it must not throw. What it gives
   * ends this.
   */
  watch(namespaceId: string, tell: (wake: Wake) => void): () => void
}

const DELIVERED_MAX = 20_000

/** The wake path inside one instance: waiters are offered a wake first; what none takes goes to every sink. */
export function createBus(waiters: WakeTaker, observer?: Pick<WakeObserver, 'came' | 'taken'>): WakeBus {
  const sinks: WakeSink[] = []
  const tellers: ((wakes: Wake[]) => void)[] = []
  const delivered = createRecentSet(DELIVERED_MAX)
  const watchers = createWatchers()

  function deliver(wakes: (Wake | FoundWake)[], isOwn: boolean): void {
    for (const wake of wakes) {
      const key = keyOf(wake)
      if (delivered.has(key)) continue
      delivered.add(key)
      observer?.came(wake, isOwn)
      if (waiters.offer(wake)) observer?.taken(wake)
      else passOn(wake)
      watchers.tell(wake)
    }
  }

  function passOn(wake: Wake): void {
    for (const sink of sinks) sink.deliver(wake)
  }

  return {
    publish(committed, trace) {
      const wakes = trace === undefined ? committed : withOrigin(committed, trace)
      // A read-back may have seen the commit before its answer came here.
      deliver(wakes, true)
      if (wakes.length > 0) for (const tell of tellers) tell(wakes)
    },
    receive: (wakes) => deliver(wakes, false),
    passOn,
    addSink(sink) {
      sinks.push(sink)
    },
    listeningAgentIds() {
      const ids = new Set(waiters.agentIds())
      for (const sink of sinks) for (const id of sink.agentIds()) ids.add(id)
      return ids
    },
    onPublish(tell) {
      tellers.push(tell)
    },
    watch: watchers.add,
  }
}

function withOrigin(wakes: Wake[], trace: string): Wake[] {
  const origin = { trace, at: Date.now() }
  return wakes.map((wake) => ({ ...wake, origin }))
}

function createWatchers() {
  const watchersOf = new Map<string, Set<(wake: Wake) => void>>()
  return {
    tell(wake: Wake) {
      for (const each of watchersOf.get(wake.toNamespaceId) ?? []) each(wake)
    },
    add(namespaceId: string, tell: (wake: Wake) => void) {
      // One of its own: who watches twice with one function ends each for itself.
      const each = (wake: Wake) => tell(wake)
      const watchers = watchersOf.get(namespaceId) ?? new Set()
      watchersOf.set(namespaceId, watchers.add(each))
      return () => {
        watchers.delete(each)
        if (watchers.size === 0 && watchersOf.get(namespaceId) === watchers) watchersOf.delete(namespaceId)
      }
    },
  }
}

function keyOf(wake: Wake | FoundWake): string {
  const again = 'isRepeated' in wake && wake.isRepeated ? ` ${wake.wakeAt}` : ''
  return `${wake.id} ${wake.toAgentId}${again}`
}

/** A set that forgets its oldest half when full: a forgotten wake is at worst delivered twice, and listeners know its id. */
function createRecentSet(max: number) {
  let young = new Set<string>()
  let old = new Set<string>()
  return {
    has: (key: string) => young.has(key) || old.has(key),
    add(key: string) {
      young.add(key)
      if (young.size < max / 2) return
      old = young
      young = new Set()
    },
  }
}
