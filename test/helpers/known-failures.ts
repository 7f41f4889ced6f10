import { readdir, readFile } from 'node:fs/promises'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

/** One way in which software of this kind has failed, and the tests that would fail if ours did so, too. */
export interface Failure {
  id: string
  /** What fails, and by what. */
  what: string
  tests: CitedTest[]
  /** What of it no test shows, and why; without tests: all of it. */
  beyond?: string
}

export interface CitedTest {
  /** Below test/; left out where the name may stand in any file. */
  file?: string
  /** Without the suites around it; N for what is put in when it runs. A rule of tidy/ is a test, too. */
  name: string
}

/** An entry of a table, its tests by the file in which they are. */
export function failure(id: string, what: string, names: Record<string, string[]>, beyond?: string): Failure {
  const tests = Object.entries(names).flatMap(([file, each]) => each.map((name) => ({ file, name })))
  return { id, what, tests, ...(beyond !== undefined && { beyond }) }
}

const TESTS = fileURLToPath(new URL('..', import.meta.url))
/** `test('…` and helpers that end so, at the start of their line: a comment is no test, and neither is `/x/.test('…')`. */
const NAME = /^ *(?:test|\w+Test)\(\s*(['"`])((?:\\.|(?!\1)[^\\\n])+)\1/gm
const RULE = /^ *(?:\{ )?name: (['"`])((?:\\.|(?!\1)[^\\\n])+)\1/gm

/** The names of all tests, by file. */
async function readTestNames(): Promise<Map<string, Set<string>>> {
  const paths = (await readdir(TESTS, { recursive: true })).map((path) => path.replaceAll(sep, '/'))
  const files = paths.filter((path) => /\.test\.ts$|^tidy\/[^/]*\.ts$/.test(path))
  return new Map(
    await Promise.all(
      files.map(async (file) => {
        const text = await readFile(join(TESTS, file), 'utf8')
        const matches = [...text.matchAll(file.endsWith('.test.ts') ? NAME : RULE)]
        const names = matches.map(([, , name = '']) => name.replace(/\$\{[^}]*\}/g, 'N').replace(/\\(.)/g, '$1'))
        return [file, new Set(names)] as const
      }),
    ),
  )
}

/** Tests that a table names and that are not there. */
export async function listMissingTests(failures: Failure[]): Promise<string[]> {
  const names = await readTestNames()
  const isThere = ({ file, name }: CitedTest) =>
    file === undefined ? [...names.values()].some((each) => each.has(name)) : names.get(file)?.has(name) === true
  return failures.flatMap(({ id, tests }) =>
    tests.filter((cited) => !isThere(cited)).map(({ file, name }) => `${id}: ${file ?? 'anywhere'}: ${name}`),
  )
}

/** Entries with neither a test nor a reason why none can be. */
export function listBareFailures(failures: Failure[]): string[] {
  return failures.filter(({ tests, beyond }) => tests.length === 0 && !beyond).map(({ id }) => id)
}
