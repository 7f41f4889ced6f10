import { fuzzStreams } from './ws-fuzz.ts'

/** 100,000 streams in a process of its own (with --expose-gc), where nobody else moves the heap; one line of JSON. */
const MIB = 1024 * 1024
const SEED = 20_260_729

function measureHeap(): number {
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return (heapUsed + external) / MIB
}

const warm = await fuzzStreams({ seed: SEED, streams: 20_000 })
const before = measureHeap()
const ends = await fuzzStreams({ seed: SEED, from: 20_000, streams: 80_000 })
const grownMiB = measureHeap() - before
console.log(JSON.stringify({ grownMiB, warm: warm.size, ends: Object.fromEntries(ends) }))
