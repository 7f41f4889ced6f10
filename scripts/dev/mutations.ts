import { parseArgs } from 'node:util'
import { Checker, type Finding } from './mutations/check.ts'
import { MUTATIONS, type Mutation } from './mutations/list.ts'

/**
 * `npm run mutations -- [--only "settle on fetch"]`: plants one deliberate bug at a time in a copy of the working tree and
 * runs the tests that must notice it, which pass without it. Exit 1 when one is not found within three minutes.
 */

function readArguments(): Mutation[] {
  const { values } = parseArgs({ options: { only: { type: 'string' } } })
  if (values.only === undefined) return MUTATIONS
  const chosen = MUTATIONS.filter(({ name }) => name === values.only)
  if (chosen.length > 0) return chosen
  throw new Error(
    `--only: there is no "${values.only}" among\n${MUTATIONS.map(({ name }) => `  "${name}"`).join('\n')}`,
  )
}

async function main(): Promise<void> {
  const mutations = readArguments()
  const stopping = new AbortController()
  // Each time: npm passes on what the terminal has told us already.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => stopping.abort(new Error(`stopped by ${signal}`)))
  }
  const log = (line: string) => console.log(line)
  const checker = new Checker({ log, stopped: stopping.signal })
  const findings: Finding[] = []
  for (const mutation of mutations) {
    log(`${mutation.name}: ${mutation.file}`)
    findings.push(await checkOne(checker, mutation, stopping.signal))
  }
  print(findings)
}

async function checkOne(checker: Checker, mutation: Mutation, stopped: AbortSignal): Promise<Finding> {
  try {
    return await checker.check(mutation)
  } catch (error) {
    if (stopped.aborted) throw error
    return { mutation, seconds: null, trouble: error instanceof Error ? error.message : String(error) }
  }
}

function print(findings: Finding[]): void {
  const width = Math.max(...findings.map(({ mutation }) => mutation.name.length))
  const line = (name: string, seconds: string, test: string) =>
    console.log(`${name.padEnd(width)}  ${seconds.padStart(9)}  ${test}`)
  const missed = findings.filter(({ seconds }) => seconds === null)
  for (const { mutation, trouble } of missed) console.log(`\nNOT FOUND: ${mutation.name}: ${trouble}`)
  console.log()
  line('mutation', 'after', 'found by')
  for (const { mutation, seconds } of findings) {
    const { name, tests, foundBy } = mutation
    line(name, seconds === null ? 'NOT FOUND' : `${seconds.toFixed(1)} s`, `${tests.join(' ')} › ${foundBy}`)
  }
  console.log(`\n${findings.length - missed.length} of ${findings.length} mutations were found`)
  if (missed.length > 0) process.exitCode = 1
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
})
