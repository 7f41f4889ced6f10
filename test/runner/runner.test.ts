import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { access, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { FILES_WITHOUT_POSTGRES, parseArguments, selectFiles } from './select.ts'
import { createTally, maySkip, summarize } from './tally.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const REPORTER = new URL('reporter.ts', import.meta.url).href
const RUN_MS_MAX = 60_000

interface Outcome {
  code: number
  output: string
}

/** Runs fixtures as test/run.ts runs test files. */
function runFixtures(...all: (string | { env: NodeJS.ProcessEnv })[]): Promise<Outcome> {
  const filesAndOptions = all.filter((one) => typeof one === 'string')
  const [{ env } = {}] = all.filter((one) => typeof one !== 'string')
  const args = ['--import', 'tsx', `--test-reporter=${REPORTER}`, '--test-reporter-destination=stdout']
  args.push(`${ROOT}test/runner/run-files.ts`, ...filesAndOptions)
  return new Promise((resolve) => {
    const child = execFile(process.execPath, args, { cwd: ROOT, env, timeout: RUN_MS_MAX }, (_error, stdout, stderr) =>
      resolve({ code: child.exitCode ?? -1, output: stdout + stderr }),
    )
  })
}

describe('a run of test files', () => {
  test('passes, counts tests only, and gives each file hooks of its own', async () => {
    const { code, output } = await runFixtures('test/fixtures/runner/passes.ts', 'test/fixtures/runner/passes-too.ts')
    assert.equal(code, 0, output)
    assert.match(output, /^# tests 3\n# pass 3\n# fail 0\n# skipped 0\n3 passed, 0 failed$/m)
    assert.match(output, /^starts 1, resets 2$/m)
  })

  test('fails with a failed test, and names it last with its file', async () => {
    const { code, output } = await runFixtures('test/fixtures/runner/passes-too.ts', 'test/fixtures/runner/fails.ts')
    assert.equal(code, 1)
    assert.match(output, /Error: planted\n/)
    assert.match(output, /✖ \S*fails\.ts › a group › goes wrong\n# tests 2\n# pass 1\n# fail 1\n/)
  })

  test('says again at its end what each failure was, shortened, under the names of tests that ran side by side, too', async () => {
    const { code, output } = await runFixtures('test/fixtures/runner/fails-long.ts')
    assert.equal(code, 1)
    const summary = output.slice(output.indexOf('\n✖ '))
    const file = 'test/fixtures/runner/fails-long.ts'
    const last = `✖ ${file} › several at once › ends last and goes wrong`
    const inside = `✖ ${file} › several at once › a group inside › ends first and goes wrong`
    const [, first = '', second = '', end = ''] = summary.split(/^✖ .* › /m)
    assert.ok(summary.startsWith(`\n${last}\n    AssertionError`), summary)
    assert.match(first, /line 0\n[\s\S]*… \d+ more lines …\n[\s\S]*planted last/)
    assert.ok(first.split('\n').length < 45, first)
    assert.match(second, /planted wide/)
    assert.ok(
      second.split('\n').every((line) => line.length < 410),
      second,
    )
    assert.ok(summary.includes(`\n${last}\n${inside}\n# tests 3\n# pass 1\n# fail 2\n`), summary)
    assert.ok(end !== '')
  })

  test('fails with a file that throws at import, and runs the others', async () => {
    const { code, output } = await runFixtures('test/fixtures/runner/throws.ts', 'test/fixtures/runner/passes-too.ts')
    assert.equal(code, 1)
    assert.match(output, /planted at import/)
    assert.match(output, /✔ has no hooks/)
  })

  test('has a HOME of its own, knows no token of its user, and fails when something is written there', async () => {
    const home = await mkdtemp(join(tmpdir(), 'patchcord-home-'))
    const env = { PATH: process.env.PATH, HOME: home, XDG_CONFIG_HOME: home, PATCHCORD_TOKEN: 'mine' }
    const { code, output } = await runFixtures({ env }, 'test/fixtures/runner/writes-home.ts')
    assert.equal(code, 1)
    assert.match(output, /✔ writes a file/)
    assert.match(output, /✖ test\/run\.ts › a test wrote into the home of its user: \S*trusted\.json\n/)
    assert.deepEqual(await readdir(home), [])
    await rm(home, { recursive: true })
  })

  test('fails when no test ran', async () => {
    const { code, output } = await runFixtures('test/fixtures/runner/empty.ts')
    assert.equal(code, 1)
    assert.match(output, /✖ no test ran\n# tests 0\n# pass 0\n# fail 0$/m)
  })

  test('names a skipped test, and fails with it where nothing may be skipped', async () => {
    const { code, output } = await runFixtures('test/fixtures/runner/skips.ts')
    assert.equal(code, maySkip() ? 0 : 1)
    assert.match(output, /skipped: \S*skips\.ts › finds no tool\n# tests 2\n# pass 1\n/)
    const tally = { ...createTally(), passed: 1, skipped: ['a'] }
    assert.equal(summarize(tally, true).isGood, true)
    assert.equal(summarize(tally, false).isGood, false)
  })

  test('fails with work that outlives its test', async () => {
    const { code, output } = await runFixtures('test/fixtures/runner/strays.ts')
    assert.equal(code, 1)
    assert.match(output, /planted late/)
  })

  test('fails with a handle that is left open, names it, and ends', async () => {
    const { code, output } = await runFixtures('--grace-ms=300', 'test/fixtures/runner/leaves-open.ts')
    assert.equal(code, 1)
    assert.match(output, /still open 0\.3 s after the last test: .*TCPServerWrap.*Server .*127\.0\.0\.1/)
    assert.match(output, /^1 passed, 1 failed$/m)
  })

  test('fails when a test hangs, names it, and ends', async () => {
    const { code, output } = await runFixtures('--silence-ms=3000', 'test/fixtures/runner/hangs.ts')
    assert.equal(code, 1)
    assert.match(output, /nothing ended for 3 s; still running: .*waits for ever/)
  })
})

describe('a selection of test files', () => {
  const files = ['test/tidy.test.ts', 'test/db/b.test.ts', 'test/db/a.kill.ts', 'test/db/a.test.ts', 'test/db/seed.ts']
  const select = (...args: string[]) => selectFiles(files, parseArguments(args))

  test('is every test file, in order', () => {
    assert.deepEqual(select(), ['test/db/a.test.ts', 'test/db/b.test.ts', 'test/tidy.test.ts'])
  })
  test('is narrowed by parts of the path', () => {
    assert.deepEqual(select('db/b', 'tidy'), ['test/db/b.test.ts', 'test/tidy.test.ts'])
  })
  test('is the long kill run alone with --kill', () => {
    assert.deepEqual(select('--kill'), ['test/db/a.kill.ts'])
  })
  test('leaves out what needs no database with --postgres15', () => {
    assert.deepEqual(select('--postgres15'), ['test/db/a.test.ts', 'test/db/b.test.ts'])
  })
  test('leaves out with --postgres15 what needs one only to have a server, by name, and nothing that is new', () => {
    const named = ['realtime/socket', 'realtime/official-client', 'mcp/streams', 'http/gate', 'plugin/cli', 'config']
    const kept = ['end-to-end/kill-again', 'http/routes/log', 'mcp/wait', 'new', 'plugins/new', 'realtime/socket-new']
    const all = [...named, ...kept].map((name) => `test/${name}.test.ts`)
    const selected = selectFiles(all, parseArguments(['--postgres15']))
    assert.deepEqual(
      selected,
      kept.map((name) => `test/${name}.test.ts`),
    )
  })
  test('knows each file that it leaves out by name', async () => {
    for (const file of FILES_WITHOUT_POSTGRES) await access(join(ROOT, file))
  })
  test('refuses an unknown option', () => {
    assert.throws(() => select('--postgres16'), /--postgres16/)
  })
})
