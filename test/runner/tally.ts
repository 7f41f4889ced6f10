export interface Failure {
  file: string
  name: string
}

/** What the reporter has seen so far: kept apart from the stream of events, so that a run that is cut short is summed up too. */
export interface Tally {
  passed: number
  failures: Failure[]
  /** Tests that did not run. */
  skipped: string[]
  /** Work that outlived its test and failed: node:test only warns of it. */
  strays: string[]
  running: Map<string, string>
  lastEventAt: number
}

export function createTally(): Tally {
  return { passed: 0, failures: [], skipped: [], strays: [], running: new Map(), lastEventAt: Date.now() }
}

/** The tally of this process: node:test loads the reporter itself, so nothing can be passed to it. */
export const tally = createTally()

/**
 * The only good reasons to skip a test are the platform and the user (a tidy rule), so that as root on Linux, where .ci/run
 * runs, nothing is left out.
 */
export function maySkip(): boolean {
  return process.platform !== 'linux' || process.getuid?.() !== 0
}

/** `# tests`, `# pass`, `# fail` as node prints them in TAP, after what a reader wants to see last: the names of the failures. */
export function summarize(tally: Tally, maySkip: boolean): { text: string; isGood: boolean } {
  const { passed, failures, skipped, strays } = tally
  const wrong = failures.length + strays.length + (maySkip ? 0 : skipped.length)
  const lines = [
    ...failures.map(({ file, name }) => `✖ ${file} › ${name}`),
    ...skipped.map((name) => `${maySkip ? '﹣' : '✖'} skipped: ${name}`),
    ...strays.map((message) => `✖ after its test had ended: ${message}`),
    ...(passed + wrong === 0 ? ['✖ no test ran'] : []),
    `# tests ${passed + failures.length + strays.length + skipped.length}`,
    `# pass ${passed}`,
    `# fail ${wrong}`,
    `# skipped ${skipped.length}`,
    `${passed} passed, ${wrong} failed`,
  ]
  return { text: `\n${lines.join('\n')}\n`, isGood: wrong === 0 && passed > 0 }
}
