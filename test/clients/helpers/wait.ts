import { setTimeout as sleep } from 'node:timers/promises'

const WAIT_MS = 120_000
const LOOK_MS = 100

/** Looks until it is so; throws with what `describe` says of how it is instead. */
export async function waitUntil(
  isSo: () => Promise<boolean>,
  describe: () => Promise<string> | string,
  timeoutMs = WAIT_MS,
): Promise<void> {
  const until = performance.now() + timeoutMs
  while (!(await isSo())) {
    if (performance.now() > until) throw new Error(`not within ${timeoutMs} ms: ${await describe()}`)
    await sleep(LOOK_MS)
  }
}
