import type { TestEvent } from 'node:test/reporters'
import { inspect } from 'node:util'
import { type Failure, type Tally, tally } from './tally.ts'

export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const narrator = new Narrator(tally)
  for await (const event of events) yield narrator.tell(event)
}

type Ended = Extract<TestEvent, { type: 'test:pass' | 'test:fail' }>['data']

/** Turns the events of node:test into a line per test, under the file's name, and counts them. */
class Narrator {
  private readonly counts: Tally
  /** Names of the suites around the current test; the outermost is the file. */
  private readonly path: string[] = []
  private file = ''

  constructor(counts: Tally) {
    this.counts = counts
  }

  tell(event: TestEvent): string {
    this.counts.lastEventAt = Date.now()
    if (event.type === 'test:dequeue') this.counts.running.set(keyOf(event.data), event.data.name)
    if (event.type === 'test:start') this.path.splice(event.data.nesting, Number.POSITIVE_INFINITY, event.data.name)
    if (event.type === 'test:diagnostic') return this.hear(event.data.message)
    if (event.type === 'test:pass' || event.type === 'test:fail') return this.end(event.type, event.data)
    return ''
  }

  private end(type: 'test:pass' | 'test:fail', data: Ended): string {
    this.counts.running.delete(keyOf(data))
    const isSuite = data.details.type === 'suite'
    const error = 'error' in data.details ? data.details.error : undefined
    // What passes at the outermost level is a file, or the runner's own last step: neither is a test.
    if (type === 'test:pass' && (isSuite || data.nesting === 0)) return ''
    if (failureTypeOf(error) === 'subtestsFailed') return ''
    const [file = '', ...names] = this.path.slice(0, data.nesting + 1)
    const name = names.join(' › ') || file
    const heading = file === this.file ? '' : `${file}\n`
    this.file = file
    const detail = type === 'test:fail' ? inspect(error?.cause ?? error) : undefined
    const mark = this.count(data, { file, name, ...(detail === undefined ? {} : { detail }) })
    const trouble = detail === undefined ? '' : `\n${indent(detail)}`
    return `${heading}  ${mark} ${name} (${Math.round(data.details.duration_ms)} ms)${trouble}\n`
  }

  /** With a detail it has failed. */
  private count(data: Ended, test: Failure): string {
    if (isSet(data.skip) || isSet(data.todo)) {
      this.counts.skipped.push(`${test.file} › ${test.name}`)
      return '﹣'
    }
    if (test.detail === undefined) this.counts.passed += 1
    else this.counts.failures.push(test)
    return test.detail === undefined ? '✔' : '✖'
  }

  private hear(message: string): string {
    if (/asynchronous activity after the test ended/.test(message)) this.counts.strays.push(message)
    return /^(?:tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) /.test(message) ? '' : `  ℹ ${message}\n`
  }
}

function keyOf({ nesting, name }: { nesting: number; name: string }): string {
  return `${nesting} ${name}`
}

function failureTypeOf(error: unknown): unknown {
  return error instanceof Error && 'failureType' in error ? error.failureType : undefined
}

function isSet(directive: string | boolean | undefined): boolean {
  return directive !== undefined && directive !== false
}

function indent(text: string): string {
  return text.replace(/^/gm, '    ')
}
