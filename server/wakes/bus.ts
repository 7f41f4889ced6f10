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
  /** Wakes of messages that this instance has just committed: delivered here, and told to the other instances. */
  publish(wakes: Wake[]): void
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
export function createBus(waiters: WakeTaker): WakeBus {
  const sinks: WakeSink[] = []
  const tellers: ((wakes: Wake[]) => void)[] = []
  const delivered = createRecentSet(DELIVERED_MAX)
  const watchers = createWatchers()

  function deliver(wakes: (Wake | FoundWake)[]): void {
    for (const wake of wakes) {
      const key = keyOf(wake)
      if (delivered.has(key)) continue
      delivered.add(key)
      if (!waiters.offer(wake)) passOn(wake)
      watchers.tell(wake)
    }
  }

  function passOn(wake: Wake): void {
    for (const sink of sinks) sink.deliver(wake)
  }

  return {
    publish(wakes) {
      // A read-back may have seen the commit before its answer came here.
      deliver(wakes)
      if (wakes.length > 0) for (const tell of tellers) tell(wakes)
    },
    receive: deliver,
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
