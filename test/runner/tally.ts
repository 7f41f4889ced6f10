export interface Failure {
  file: string
  name: string
  /** The error as it is inspected, if there was one. */
  detail?: string
}

/** Of each detail in the summary: what went wrong stands at the beginning, what a program that failed said last near the end. */
const DETAIL_LINES_MAX = 40
const LINE_CHARACTERS_MAX = 400

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

/**
 * `# tests`, `# pass`, `# fail` as node prints them in TAP, after what a reader wants to see last: the names of the failures,
 * and before them what each was, as whoever sees only the end of a long output has no other place to learn it.
 */
export function summarize(tally: Tally, maySkip: boolean): { text: string; isGood: boolean } {
  const { passed, failures, skipped, strays } = tally
  const wrong = failures.length + strays.length + (maySkip ? 0 : skipped.length)
  const lines = [
    ...failures.flatMap(({ file, name, detail }) =>
      detail === undefined ? [] : [`✖ ${file} › ${name}`, ...shorten(detail)],
    ),
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

function shorten(detail: string): string[] {
  const lines = detail
    .split('\n')
    .map((line) => (line.length > LINE_CHARACTERS_MAX ? `${line.slice(0, LINE_CHARACTERS_MAX)}…` : line))
  const half = DETAIL_LINES_MAX / 2
  const left = lines.length - 2 * half
  const shown = left <= 0 ? lines : [...lines.slice(0, half), `… ${left} more lines …`, ...lines.slice(-half)]
  return shown.map((line) => `    ${line}`)
}
