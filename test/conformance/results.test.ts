import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { type Check, type Expectation, judge, scenarioOf } from './helpers/results.ts'

const pass: Check = { id: 'lists', status: 'SUCCESS' }
const image: Check = { id: 'image', status: 'FAILURE', errorMessage: 'no such tool' }
const RESULTS = [
  { scenario: 'tools', checks: [pass, image] },
  { scenario: 'streams', checks: [pass, pass, { id: 'session', status: 'INFO' } as const] },
]
const EXPECTED: Expectation = {
  passes: { 1: ['tools'], 2: ['streams'] },
  baseline: { 'no images': ['tools:image'] },
  code: 1,
}

function problemsOf(results: typeof RESULTS, expected = EXPECTED, code = 1): string[] {
  return judge({ code, results }, expected).problems
}

/** The results with other checks in the scenario `tools`. */
function withTools(...checks: Check[]): typeof RESULTS {
  return RESULTS.map((each) => (each.scenario === 'tools' ? { ...each, checks } : each))
}

describe('a run of the conformance tool', () => {
  test('is as expected when all scenarios ran and what fails is excused', () => {
    assert.deepEqual(judge({ code: 1, results: RESULTS }, EXPECTED), {
      problems: [],
      scenarios: 2,
      passed: 3,
      excused: 1,
    })
  })

  test('fails by a failure or a warning that no entry excuses', () => {
    for (const status of ['FAILURE', 'WARNING'] as const) {
      const results = withTools(pass, image, { id: 'order', status, errorMessage: 'not sorted' })
      const problem = 'tools:order fails, and no baseline entry (test/conformance/expected-*.ts) excuses it: not sorted'
      assert.deepEqual(problemsOf(results), [problem])
    }
  })

  test('fails by an entry that is not needed any more, be the check passed, skipped or gone', () => {
    const problem = 'tools:image does not fail any more: take it out of the baseline (test/conformance/expected-*.ts).'
    for (const status of ['SKIPPED', 'INFO'] as const) {
      assert.deepEqual(problemsOf(withTools(pass, { id: 'image', status })), [problem])
    }
    assert.deepEqual(problemsOf(withTools(pass)), [problem])
    const passed = problemsOf(withTools(pass, { id: 'image', status: 'SUCCESS' }))
    assert.deepEqual(passed, ['In tools 2 checks pass, not 1.', problem])
  })

  test('fails when one of two checks of the same name fails that both passed or both failed before', () => {
    const again: Check = { id: 'lists', status: 'FAILURE', errorMessage: 'the second time' }
    const failed = problemsOf(withTools(pass, image, again))
    assert.deepEqual(failed, [
      'tools:lists fails, and no baseline entry (test/conformance/expected-*.ts) excuses it: the second time',
    ])
    const passed = problemsOf(withTools(pass, image, { id: 'image', status: 'SUCCESS' }))
    assert.deepEqual(passed, ['In tools 2 checks pass, not 1.'])
  })

  test('fails when a scenario did not run, none ran, or one ran of which nobody knows', () => {
    const [tools, streams] = RESULTS
    assert.ok(tools && streams)
    assert.deepEqual(problemsOf([tools]), ['The scenario streams did not run.'])
    assert.ok(problemsOf([]).includes('The tool ran no scenario.'))
    const news = problemsOf([tools, streams, { scenario: 'news', checks: [pass] }])
    assert.deepEqual(news, ['The scenario news ran, and nothing is expected of it.'])
  })

  test('fails when checks are fewer, without one that fails', () => {
    assert.deepEqual(problemsOf(withTools(image)), ['In tools 0 checks pass, not 1.'])
  })

  test('fails by an exit code that does not fit, and by an entry that is there twice', () => {
    assert.deepEqual(problemsOf(RESULTS, EXPECTED, 0), ['The tool ended with 0, not 1.'])
    assert.deepEqual(problemsOf(RESULTS, { ...EXPECTED, code: 0 }, 1), ['The tool ended with 1, not 0.'])
    const twice = { ...EXPECTED, baseline: { one: ['tools:image'], other: ['tools:image'] } }
    assert.deepEqual(problemsOf(RESULTS, twice), ['tools:image is excused twice.'])
  })

  test('leaves out the extension for tasks, which nobody is required to have', () => {
    const tasks = { scenario: 'tasks-lifecycle', checks: [{ id: 'create', status: 'FAILURE' as const }] }
    assert.deepEqual(problemsOf([...RESULTS, tasks]), [])
  })
})

describe('a folder of results', () => {
  test('is named after its scenario and the time', () => {
    assert.equal(scenarioOf('server-server-stateless-2026-11-30T07-08-09-123Z'), 'server-stateless')
    assert.equal(scenarioOf('server-json-schema-2020-12-2026-11-30T07-08-09-123Z'), 'json-schema-2020-12')
    assert.equal(scenarioOf('notes'), null)
  })
})
