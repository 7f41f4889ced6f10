import { Copy, type Ended, type RunOptions } from './copy.ts'
import type { Mutation } from './list.ts'

const BUILD_MS_MAX = 120_000
const TESTS_MS_MAX = 180_000

/** Tests that ran, by name as the run names them, each with the seconds after which it ended. */
export interface Tests {
  passed: Map<string, number>
  failed: Map<string, number>
}

export interface Finding {
  mutation: Mutation
  /** After how many seconds the test failed that must; null when it did not. */
  seconds: number | null
  /** Why nothing was found, with the end of the output. */
  trouble: string
}

export interface CheckOptions {
  log: (line: string) => void
  stopped: AbortSignal
}

export class Checker {
  readonly #options: CheckOptions
  /** Runs of tests without a mutation, by their words: each is made once. */
  readonly #sound = new Map<string, Tests>()

  constructor(options: CheckOptions) {
    this.#options = options
  }

  /** Throws when the tests fail without the mutation, or when the mutated code does not build. */
  async check(mutation: Mutation): Promise<Finding> {
    const copy = await Copy.create()
    try {
      const passed = await this.#runSound(copy, mutation)
      if (!passed.has(mutation.foundBy)) {
        throw new Error(`there is no test "${mutation.foundBy}" among ${mutation.tests.join(' ')}`)
      }
      await copy.mutate(mutation)
      await this.#build(copy)
      this.#options.log('  with the mutation: tests …')
      const { failed, ended } = await this.#runTests(copy, mutation.tests, mutation.foundBy)
      for (const [name, at] of failed) this.#options.log(`  ✖ ${name} (${at.toFixed(1)} s)`)
      const seconds = failed.get(mutation.foundBy)
      // A test that was running when the time was over fails, too, and has found nothing.
      if (seconds !== undefined && seconds * 1000 < TESTS_MS_MAX) return { mutation, seconds, trouble: '' }
      return { mutation, seconds: null, trouble: `the run ${ended.how}\n${ended.tail}` }
    } finally {
      await copy.remove()
    }
  }

  async #runSound(copy: Copy, { tests }: Mutation): Promise<Map<string, number>> {
    const key = tests.join(' ')
    const known = this.#sound.get(key)
    if (known) return known.passed
    await this.#build(copy)
    this.#options.log(`  without it: ${key} …`)
    const { ended, ...sound } = await this.#runTests(copy, tests)
    if (!ended.isGood) throw new Error(`without a mutation, ${key} ${ended.how}\n${ended.tail}`)
    this.#sound.set(key, sound)
    return sound.passed
  }

  async #build(copy: Copy): Promise<void> {
    for (const script of ['build', 'types']) {
      const ended = await copy.run('npm', ['run', '--silent', script], this.#limits(BUILD_MS_MAX))
      if (!ended.isGood) throw new Error(`npm run ${script} ${ended.how}\n${ended.tail}`)
    }
  }

  /** No further than to the failure of one test. */
  async #runTests(copy: Copy, words: string[], awaited?: string): Promise<Tests & { ended: Ended }> {
    const tests: Tests = { passed: new Map(), failed: new Map() }
    const enough = new AbortController()
    const startedAt = performance.now()
    const onLine = (line: string) => {
      // What fails from then on does so because the run is ended.
      if (enough.signal.aborted) return
      noteTest(tests, line, (performance.now() - startedAt) / 1000)
      if (awaited !== undefined && tests.failed.has(awaited)) enough.abort()
    }
    const options = { ...this.#limits(TESTS_MS_MAX), enough: enough.signal, onLine }
    return { ...tests, ended: await copy.run('node_modules/.bin/tsx', ['test/run.ts', ...words], options) }
  }

  #limits(timeoutMs: number): RunOptions {
    return { timeoutMs, stopped: this.#options.stopped }
  }
}

/** One line of a run. A file that throws at import is named by its path, so it is none of the tests that are asked for. */
export function noteTest({ passed, failed }: Tests, line: string, seconds: number): void {
  const [, mark, name] = /^ {2}([✔✖]) (.+) \(\d+ ms\)$/.exec(line) ?? []
  if (name !== undefined) (mark === '✔' ? passed : failed).set(name, seconds)
}
