import { parseArgs } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { fuzzStreams } from '../../test/scripts/ws-fuzz.ts'

const MIB = 1024 * 1024

/** `npm run fuzz -- [--streams N] [--seed N] [--from N]`: mutated frames against the WebSocket client's parser and the ws package. */
async function run(): Promise<void> {
  const options = { streams: { type: 'string' }, seed: { type: 'string' }, from: { type: 'string' } } as const
  const { values } = parseArgs({ options })
  const [streams, from] = [Number(values.streams ?? 100_000), Number(values.from ?? 0)]
  const seed = Number(values.seed ?? Date.now() % 1_000_000)
  console.log(`seed ${seed}, streams ${from} to ${from + streams - 1}`)
  const collect = exposeCollector()
  let heapPeak = 0
  let heapEarly = 0
  let slowestMs = 0
  let last = performance.now()
  const started = last
  const ends = await fuzzStreams({
    seed,
    from,
    streams,
    onBatch: (done) => {
      const now = performance.now()
      slowestMs = Math.max(slowestMs, now - last)
      heapPeak = Math.max(heapPeak, measureHeap())
      if (heapEarly === 0 && done >= streams / 10) {
        collect()
        heapEarly = measureHeap()
      }
      last = performance.now()
    },
  })
  const seconds = (performance.now() - started) / 1000
  collect()
  console.log(
    `${seconds.toFixed(1)} s, ${Math.round(streams / seconds)} streams/s, slowest thousand ${Math.round(slowestMs)} ms`,
  )
  for (const [end, count] of groupEnds(ends)) console.log(`  ${end.padEnd(16)}${String(count).padStart(9)}`)
  console.log(
    `heap and buffers: ${heapEarly.toFixed(1)} MiB after a tenth, ${measureHeap().toFixed(1)} MiB at the end, peak ${heapPeak.toFixed(1)} MiB`,
  )
}

/** Sorted; the codes that applications may choose (RFC 6455 §7.4.2) count as one. */
function groupEnds(ends: Map<string, number>): [string, number][] {
  const grouped = new Map<string, number>()
  for (const [end, count] of ends) {
    const name = end.replace(/^close [34]\d{3}$/, 'close 3000–4999')
    grouped.set(name, (grouped.get(name) ?? 0) + count)
  }
  return [...grouped].sort(([a], [b]) => a.localeCompare(b))
}

function measureHeap(): number {
  const { heapUsed, external } = process.memoryUsage()
  return (heapUsed + external) / MIB
}

function exposeCollector(): () => void {
  setFlagsFromString('--expose-gc')
  return runInNewContext('gc') as () => void
}

await run()
