/** One line of the table. A figure means nothing without what it is measured against, in the same run. */
export interface Row {
  /** Which part of the benchmark: a letter. */
  part: string
  /** What was measured, under which load. */
  what: string
  /** The figure, with its unit. */
  measured: string
  /** What it is compared with, and that one's figure; '' where it stands alone. */
  against: string
  /** `measured` to `against`; null where it stands alone. */
  ratio: number | null
  /** Such as '≥ 0.6'; null where none was set. */
  target: string | null
  /** null without a target. */
  isMet: boolean | null
  /** What the figures come from, for the JSON. */
  data: Record<string, unknown>
}

export interface BenchOptions {
  /** For the databases that are measured; they keep every commit on its disk. */
  folder: string
  /** Shortens every part, to see that it works: its figures mean little. */
  isQuick: boolean
  /** Sizes beyond those that a run of minutes allows. */
  isHuge: boolean
  /** Says how far it is. */
  log(line: string): void
  /** Runs at the end of the part, when it fails, and at Ctrl-C; what was told last comes first. */
  onEnd(close: () => unknown): void
}

export type MeasurePart = (options: BenchOptions) => Promise<Row[]>

/** Nearest rank; NaN of nothing. */
export function percentile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

export function median(values: number[]): number {
  return percentile(values, 0.5)
}

/** Whatever comes after another one may pay for it: in even rounds each starts once, in odd ones the order is turned round. */
export function orderOf<T>(variants: readonly T[], round: number): T[] {
  const start = Math.floor(round / 2) % variants.length
  const turned = [...variants.slice(start), ...variants.slice(0, start)]
  return round % 2 === 0 ? turned : turned.reverse()
}

/** `measured` to `against`, which must both be something. */
export function ratioOf(measured: number, against: number): number {
  if (measured > 0 && against > 0) return measured / against
  throw new Error(`no ratio of ${measured} and ${against}: one of the two was not measured`)
}

/** For people: 0.42 ms, 4.2 ms, 420 ms, 42.0 s. */
export function formatMs(ms: number): string {
  if (!Number.isFinite(ms)) throw new Error(`${ms} ms were not measured`)
  if (Math.abs(ms) >= 10_000) return `${(ms / 1000).toFixed(1)} s`
  const digits = Math.abs(ms) >= 10 ? 0 : Math.abs(ms) >= 1 ? 1 : 2
  return `${ms.toFixed(digits)} ms`
}

/** Whether a figure meets a target such as '≥ 0.6' or '≤ 1.3'. */
export function meets(figure: number, target: string): boolean {
  const [sign, bound] = target.split(' ')
  return sign === '≥' ? figure >= Number(bound) : figure <= Number(bound)
}
