import type { Kind } from './kinds.ts'
import { isWrong } from './model.ts'
import { describe, type Report, type RunOptions, runFaults } from './run.ts'

/**
 * Looks for fewer kinds of faults that are enough for a failure, in one round with the same seed. Races are not repeated by a
 * seed: what fails again does need no more than these kinds, and what passes proves nothing.
 */

const TRIES_MAX = 8
const ROUND_MINUTES = 0.5

export async function shrink(options: RunOptions, report: Report): Promise<void> {
  const { log, seed, agents } = options
  let kinds = options.kinds.filter(({ name }) => (report.faults.get(name) ?? 0) > 0)
  let parts = 2
  let hasFailedAgain = false
  log(`\nShrinking: at most ${TRIES_MAX} runs of ${ROUND_MINUTES * 60} s with fewer kinds …`)
  for (let tries = 0; tries < TRIES_MAX && kinds.length > 1; ) {
    const smaller = await findFailing(split(kinds, parts), () => tries++ < TRIES_MAX, options)
    if (smaller !== null) {
      hasFailedAgain = true
      kinds = smaller
      parts = 2
    } else if (parts >= kinds.length) break
    else parts = Math.min(parts * 2, kinds.length)
  }
  const names = kinds.map(({ name }) => name).join(', ')
  if (hasFailedAgain)
    log(
      `These are enough: npm run faults -- --minutes ${ROUND_MINUTES} --seed ${seed} --agents ${agents} --kinds "${names}"`,
    )
  else log('No smaller run failed again, which does not prove that it needs all of them.')
}

async function findFailing(candidates: Kind[][], mayTry: () => boolean, options: RunOptions): Promise<Kind[] | null> {
  for (const kinds of candidates) {
    if (!mayTry()) return null
    const { verdict } = await runFaults({ ...options, kinds, minutes: ROUND_MINUTES, log: () => {} })
    options.log(
      `  ${isWrong(verdict) ? 'fails' : 'passes'} with ${kinds.map(({ name }) => name).join(', ')}: ${describe(verdict)}`,
    )
    if (isWrong(verdict)) return kinds
  }
  return null
}

/** In so many parts of equal size. */
function split<T>(values: T[], parts: number): T[][] {
  const size = Math.ceil(values.length / parts)
  return Array.from({ length: Math.ceil(values.length / size) }, (_, index) =>
    values.slice(index * size, (index + 1) * size),
  )
}
