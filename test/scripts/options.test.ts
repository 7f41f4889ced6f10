import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const LISTENER = fileURLToPath(new URL('../../scripts/subscribe.mjs', import.meta.url))

function run(option: string): Promise<{ code: unknown; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [LISTENER, option], { env: {}, timeout: 60_000 }, (error, stdout, stderr) =>
      resolve({ code: error?.code ?? 0, stdout, stderr }),
    )
  })
}

test('an option that is none ends with the usage on stderr and speaks to nobody', async () => {
  for (const [option, code] of [
    ['--auot', 1],
    ['--help', 0],
  ] as const) {
    const ended = await run(option)
    assert.deepEqual([ended.code, ended.stdout], [code, ''])
    assert.match(ended.stderr, /^subscribe: usage: node subscribe\.mjs \[--auto \| --once\]/)
  }
})
