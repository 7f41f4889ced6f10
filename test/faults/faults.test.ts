import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** A run goes on until each kind has happened, for up to four times as long: less would leave a slow machine too little. */
const MINUTES = 1
/** Named pipes and SIGSTOP. */
const isPosix = process.platform !== 'win32'
const RUN_MS_MAX = 10 * 60_000
/** Found and mended once, or just well mixed: whatever fails here fails again with the same drawing. */
const FIXED_SEED = 20_261_129

/** One run as a person starts it, in a process of its own: it looks at what that process leaves open, too. */
async function runFaults(...args: string[]): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, ['--import', 'tsx', 'scripts/dev/faults.ts', ...args], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: RUN_MS_MAX,
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
  }
  await once(child, 'close')
  return { code: child.exitCode, output }
}

// Side by side: a run waits more than it works.
describe('under faults of every kind, nothing is lost, doubled, missed or forged', { concurrency: true }, () => {
  for (const [what, seed] of [
    ['a seed that is always the same', FIXED_SEED],
    ['a fresh seed', Math.floor(Math.random() * 1_000_000)],
  ] as const) {
    test(`with ${what}`, { skip: !isPosix }, async (context) => {
      context.diagnostic(`npm run faults -- --minutes ${MINUTES} --seed ${seed}`)
      const { code, output } = await runFaults(
        '--minutes',
        `${MINUTES}`,
        '--each',
        '1',
        '--seed',
        `${seed}`,
        '--no-shrink',
      )
      assert.equal(code, 0, output)
      assert.match(output, new RegExp(`with seed ${seed}: lost 0, doubled 0, missed 0, forged 0\n$`))
      for (const [, name, count] of output.matchAll(/^([a-zP][\w -]*?) {2,}(\d+)(?:, .*)?$/gm)) {
        if (/^(?:lost|doubled|missed|forged|lostFetches)$/.test(name as string)) continue
        assert.ok(Number(count) > 0, `${name} happened at all`)
      }
    })
  }
})

test('a run with an option that is wrong says which, and breaks nothing', async () => {
  for (const [args, words] of [
    [['--each', 'x'], /--each takes a whole number/],
    [['--minutes', '0'], /--minutes takes a number above 0/],
    [['--seed', 'x'], /--seed takes a whole number/],
    [['--kinds', 'delays, earthquake'], /there is no "earthquake" among server killed, /],
  ] as const) {
    const { code, output } = await runFaults(...args)
    assert.equal(code, 1)
    assert.match(output, words)
  }
})
