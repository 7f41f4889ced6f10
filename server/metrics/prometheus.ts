import type { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { Metrics, Reading } from './metrics.ts'

/** Seconds. A send takes milliseconds, a wait minutes; what is longer than the last is one class. */
const CALL_BUCKETS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60]
const WAKE_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10]
const ROW_BUCKETS = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000]
/** Any other is `other`: Node takes 35 of them from whoever comes, and no route of ours has one. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])
const PROBE_TIMEOUT_MS = 2_000

const CALLS = 'patchcord_calls_running'
const QUEUE = 'patchcord_queue_waiting'
const READINGS: Record<Reading, { name: string; labels?: Record<string, string> }> = {
  sockets: { name: 'patchcord_sockets_open' },
  topics: { name: 'patchcord_topics_joined' },
  waiters: { name: 'patchcord_waiters_waiting' },
  agentCallsRunning: { name: CALLS, labels: { of: 'agents' } },
  peopleCallsRunning: { name: CALLS, labels: { of: 'people' } },
  agentCallsWaiting: { name: QUEUE, labels: { queue: 'agents' } },
  peopleCallsWaiting: { name: QUEUE, labels: { queue: 'people' } },
  leasesWaiting: { name: QUEUE, labels: { queue: 'leases' } },
  peersWaiting: { name: QUEUE, labels: { queue: 'peers' } },
  sendsWaiting: { name: QUEUE, labels: { queue: 'sends' } },
}

export interface PrometheusOptions {
  version: string
  /** Rejects when the database does not answer. */
  probe: () => Promise<unknown>
  /** With those of the process (heap, event loop, collections), which observe it for good once they are asked for. */
  withProcess: boolean
}

export interface Prometheus extends Metrics {
  /** The page, in Prometheus' text format 0.0.4. */
  text(): Promise<string>
  readonly contentType: string
}

/** Counts for Prometheus. The library is loaded here and not before: a server without metrics has none of its cost. */
export async function createPrometheus(options: PrometheusOptions): Promise<Prometheus> {
  const client = await import('prom-client')
  const registry = new client.Registry()
  if (options.withProcess) client.collectDefaultMetrics({ register: registry })
  const make = createMakers(client, registry)
  make
    .gauge('patchcord_build_info', 'Always 1; the version is a label.', ['version'])
    .set({ version: options.version }, 1)
  addProbe(make, options.probe)
  return {
    ...countCalls(make),
    ...countWakes(make),
    ...countWork(make),
    read: addReadings(make),
    text: () => registry.metrics(),
    contentType: registry.contentType,
  }
}

type Client = typeof import('prom-client')
type Makers = ReturnType<typeof createMakers>

function createMakers(client: Client, registry: Registry) {
  const registers = [registry]
  return {
    counter: (name: string, help: string, labelNames: string[] = []): Counter =>
      new client.Counter({ name, help, labelNames, registers }),
    gauge: (
      name: string,
      help: string,
      labelNames: string[] = [],
      collect?: (gauge: Gauge) => void | Promise<void>,
    ): Gauge =>
      new client.Gauge({
        name,
        help,
        labelNames,
        registers,
        ...(collect && {
          collect() {
            return collect(this)
          },
        }),
      }),
    histogram: (name: string, help: string, buckets: number[], labelNames: string[] = []): Histogram =>
      new client.Histogram({ name, help, buckets, labelNames, registers }),
  }
}

function countCalls(make: Makers): Pick<Metrics, 'requestAnswered' | 'refused' | 'toolCalled' | 'sent'> {
  const requests = make.histogram(
    'patchcord_http_request_seconds',
    'Requests by route, from the first byte to the last of the answer; those that the gate refuses apart.',
    CALL_BUCKETS,
    ['method', 'route', 'status'],
  )
  const tools = make.histogram(
    'patchcord_mcp_tool_seconds',
    'Calls of MCP tools by outcome: ok, or the code of the error.',
    CALL_BUCKETS,
    ['tool', 'outcome'],
  )
  const refusals = make.counter(
    'patchcord_refusals_total',
    'Refusals by error code, and by what refused: http, tool or gate.',
    ['by', 'code'],
  )
  // A series that begins with its first event has no rate at that moment, and an alert would miss it.
  for (const by of ['http', 'tool']) for (const code of ['internal', 'unavailable']) refusals.inc({ by, code }, 0)
  const sends = make.counter(
    'patchcord_sends_total',
    'Messages stored: woke somebody at once, quiet, or replayed by their idempotency key.',
    ['outcome'],
  )
  return {
    requestAnswered(method, route = 'none', status, milliseconds) {
      const labels = { method: METHODS.has(method) ? method : 'other', route, status: `${Math.floor(status / 100)}xx` }
      requests.observe(labels, milliseconds / 1000)
    },
    refused: (by, code) => refusals.inc({ by, code }),
    toolCalled: (tool, outcome, milliseconds) => tools.observe({ tool, outcome }, milliseconds / 1000),
    sent: (outcome) => sends.inc({ outcome }),
  }
}

function countWakes(make: Makers): Pick<Metrics, 'wakeCame' | 'wakeTaken' | 'wakeDelivered'> {
  const came = make.counter(
    'patchcord_wakes_total',
    'Wakes by how this instance learned of them: its own send, a peer, due (held or paused until now), read_back (missed until then).',
    ['source'],
  )
  for (const source of ['send', 'peer', 'due', 'read_back']) came.inc({ source }, 0)
  const taken = make.counter('patchcord_wakes_taken_total', 'Wakes that a waiting wait_for_message took.')
  const frames = make.counter('patchcord_wake_frames_total', 'Wakes handed to sockets, one for each joined topic.')
  const delay = make.histogram(
    'patchcord_wake_delivery_seconds',
    'From the publication of a wake (read_back and due: from when it was due) until it was handed to sockets; between machines as their clocks agree.',
    WAKE_BUCKETS,
    ['source'],
  )
  return {
    wakeCame: (source) => came.inc({ source }),
    wakeTaken: () => taken.inc(),
    wakeDelivered(source, sockets, milliseconds) {
      frames.inc(sockets)
      if (milliseconds !== null) delay.observe({ source }, milliseconds / 1000)
    },
  }
}

function countWork(make: Makers): Pick<Metrics, 'leasesStored' | 'jobRan'> {
  const renewals = make.counter(
    'patchcord_lease_renewals_total',
    'Renewals of leases that were answered; each listener renews every 30 s.',
  )
  const rows = make.histogram('patchcord_lease_batch_rows', 'Renewals in one statement.', ROW_BUCKETS)
  const seconds = make.histogram('patchcord_lease_batch_seconds', 'How long one such statement took.', CALL_BUCKETS)
  const runs = make.counter('patchcord_job_runs_total', 'What the instance does by itself, by outcome: ok or failed.', [
    'job',
    'outcome',
  ])
  const last = make.gauge('patchcord_job_last_success_timestamp_seconds', 'When that last worked, as Unix time.', [
    'job',
  ])
  return {
    leasesStored(count, milliseconds) {
      renewals.inc(count)
      rows.observe(count)
      seconds.observe(milliseconds / 1000)
    },
    jobRan(job, isOk) {
      runs.inc({ job, outcome: isOk ? 'ok' : 'failed' })
      if (isOk) last.set({ job }, Math.floor(Date.now() / 1000))
    },
  }
}

function addReadings(make: Makers): Metrics['read'] {
  const known = new Map<Reading, () => number>()
  const collect = (name: string) => (gauge: Gauge) => {
    for (const [reading, read] of known) {
      const { name: own, labels = {} } = READINGS[reading]
      if (own === name) gauge.set(labels, read())
    }
  }
  make.gauge(
    'patchcord_sockets_open',
    'WebSockets of listeners on this instance.',
    [],
    collect('patchcord_sockets_open'),
  )
  make.gauge(
    'patchcord_topics_joined',
    'Agents that have at least one listener here.',
    [],
    collect('patchcord_topics_joined'),
  )
  make.gauge(
    'patchcord_waiters_waiting',
    'Calls of wait_for_message that wait here.',
    [],
    collect('patchcord_waiters_waiting'),
  )
  make.gauge(
    CALLS,
    'Calls that hold or await one of the 10 database connections; past 10 they wait for one.',
    ['of'],
    collect(CALLS),
  )
  make.gauge(
    QUEUE,
    'What waits: calls for a turn of their token or session, leases and sends for their batch, wakes for their NOTIFY.',
    ['queue'],
    collect(QUEUE),
  )
  return (readings) => {
    for (const [reading, read] of Object.entries(readings)) if (read) known.set(reading as Reading, read)
  }
}

/** A query of its own in the pool of everybody: how long it takes is how long all of them wait. */
function addProbe(make: Makers, probe: () => Promise<unknown>): void {
  // One at a time, however often the page is asked for: a database that hangs must not gather them.
  const ask = shareRuns(probe)
  // Two metrics are one look at it.
  const look = shareRuns(async () => {
    const startedAt = performance.now()
    const isUp = await answersInTime(ask())
    return { isUp, seconds: (performance.now() - startedAt) / 1000 }
  })
  make.gauge('patchcord_database_up', 'Whether the database has answered this scrape within 2 s.', [], async (gauge) =>
    gauge.set((await look()).isUp ? 1 : 0),
  )
  make.gauge(
    'patchcord_database_probe_seconds',
    'How long it took, waiting for a connection included.',
    [],
    async (gauge) => gauge.set((await look()).seconds),
  )
}

/** Whoever comes while one is under way gets that one. */
export function shareRuns<T>(run: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | null = null
  return () => {
    running ??= run().finally(() => {
      running = null
    })
    return running
  }
}

async function answersInTime(running: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, PROBE_TIMEOUT_MS, false)
  })
  const answered = running.then(
    () => true,
    () => false,
  )
  return await Promise.race([answered, late]).finally(() => clearTimeout(timer))
}
