/** What the conformance tool found, compared with what must hold. No more is excused than is named, and nothing less runs. */

export interface Check {
  id: string
  /** INFO and SKIPPED say neither that something holds nor that it does not. */
  status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'INFO' | 'SKIPPED'
  errorMessage?: string
}

/** What one run of the tool gave. */
export interface ToolRun {
  code: number
  results: ScenarioResult[]
}

export interface ScenarioResult {
  scenario: string
  checks: Check[]
}

export interface Expectation {
  /** Every scenario of the run, under how many of its checks pass. */
  passes: Record<number, string[]>
  /** Checks that cannot pass, as `scenario:check`, by the reason for it. */
  baseline: Record<string, string[]>
  /** What the tool ends with: 0 when nothing fails that the revision requires. */
  code: 0 | 1
}

export interface Verdict {
  /** A sentence for each thing that is not as expected. */
  problems: string[]
  scenarios: number
  /** Checks. */
  passed: number
  /** Baseline entries that were needed. */
  excused: number
}

/** No revision requires them, and the tool's own reference server does not have them. */
const EXTENSION = /^tasks-/

export function judge({ code, results: all }: ToolRun, expected: Expectation): Verdict {
  const results = all.filter(({ scenario }) => !EXTENSION.test(scenario))
  const entries = Object.values(expected.baseline).flat()
  const failing = new Map(results.flatMap(listFailures))
  const ran = new Map(results.map(({ scenario, checks }) => [scenario, countPasses(checks)]))
  const unexpected = [...failing].filter(([check]) => !entries.includes(check))
  const stale = entries.filter((check) => !failing.has(check))
  return {
    problems: [
      ...(results.length === 0 ? ['The tool ran no scenario.'] : []),
      ...compareScenarios(expected.passes, ran),
      ...unexpected.map(
        ([check, why]) => `${check} fails, and no baseline entry (test/conformance/expected-*.ts) excuses it: ${why}`,
      ),
      ...stale.map(
        (check) => `${check} does not fail any more: take it out of the baseline (test/conformance/expected-*.ts).`,
      ),
      ...entries.filter((check, index) => entries.indexOf(check) < index).map((check) => `${check} is excused twice.`),
      ...(code === expected.code ? [] : [`The tool ended with ${code}, not ${expected.code}.`]),
    ],
    scenarios: results.length,
    passed: [...ran.values()].reduce((sum, count) => sum + count, 0),
    excused: entries.length - stale.length,
  }
}

function compareScenarios(passes: Expectation['passes'], ran: Map<string, number>): string[] {
  const problems: string[] = []
  const expectations = new Map(
    Object.entries(passes).flatMap(([count, names]) => names.map((name) => [name, Number(count)] as const)),
  )
  for (const [scenario, expected] of expectations) {
    const count = ran.get(scenario)
    if (count === undefined) problems.push(`The scenario ${scenario} did not run.`)
    else if (count !== expected) problems.push(`In ${scenario} ${count} checks pass, not ${expected}.`)
  }
  const unknown = [...ran.keys()].filter((scenario) => !expectations.has(scenario))
  return [...problems, ...unknown.map((scenario) => `The scenario ${scenario} ran, and nothing is expected of it.`)]
}

/** A warning is a failure, too: a SHOULD that a server leaves out needs a reason. */
function listFailures({ scenario, checks }: ScenarioResult): [check: string, why: string][] {
  return checks
    .filter(({ status }) => status === 'FAILURE' || status === 'WARNING')
    .map(({ id, errorMessage }) => [`${scenario}:${id}`, errorMessage ?? 'the tool does not say why'])
}

function countPasses(checks: Check[]): number {
  return checks.filter(({ status }) => status === 'SUCCESS').length
}

const RESULT_FOLDER = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/

/** The scenario of a folder in which the tool leaves its checks; null for another folder. */
export function scenarioOf(folder: string): string | null {
  return RESULT_FOLDER.exec(folder)?.[1] ?? null
}
