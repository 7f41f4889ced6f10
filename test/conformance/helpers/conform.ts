import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { startBearerProxy } from './bearer-proxy.ts'
import { type Expectation, judge } from './results.ts'
import { type Revision, runTool } from './tool.ts'

export interface Subject {
  /** What the summary calls it. */
  name: string
  url: string
  token: string
}

/** Runs one revision against one server: a line of summary when all is as expected, else each problem and all that the tool said. */
export async function assertConforms(
  context: TestContext,
  revision: Revision,
  { name, url, token }: Subject,
  expectation: Expectation,
): Promise<void> {
  const proxy = await startBearerProxy(url, token)
  try {
    const run = await runTool(`${proxy.url}/mcp`, revision)
    const { problems, scenarios, passed, excused } = judge(run, expectation)
    const [failure] = proxy.failures
    if (failure !== undefined) {
      problems.unshift(`The server did not answer ${proxy.failures.length} requests, the first one with: ${failure}`)
    }
    if (problems.length > 0) {
      console.log(run.output)
      assert.fail([`${name} does not conform to ${revision} as expected:`, ...problems].join('\n- '))
    }
    const baseline = excused === 0 ? 'without a baseline' : `${excused} checks excused by the baseline`
    context.diagnostic(`${revision}, ${name}: ${scenarios} scenarios, ${passed} checks pass, ${baseline}`)
  } finally {
    await proxy.close()
  }
}
