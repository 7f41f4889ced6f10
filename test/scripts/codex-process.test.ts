import assert from 'node:assert/strict'
import { test } from 'node:test'
import { findCodex, hasWindow } from '../../scripts/lib/codex-process.mjs'

const CODEX = '/opt/codex/bin/codex'

/** A chain of parents, nearest first, as process 10, 11, … */
function chain(...commands: string[][]) {
  return (pid: number) => {
    const args = commands[pid - 10]
    return args === undefined ? null : { pid, parent: pid + 1, program: args[0] ?? '', args }
  }
}

function find(...commands: string[][]) {
  const found = findCodex(10, chain(...commands))
  return found === null ? null : { ...found, startTime: null }
}

const expected = { startTime: null, program: CODEX, isDaemon: false, isOneTurn: false }

test('Codex is the nearest parent of that name, and its own binary takes wakes', () => {
  assert.deepEqual(find(['/bin/sh', '-c', 'node hook'], [CODEX, '--no-daemon']), { ...expected, pid: 11 })
  assert.deepEqual(find([CODEX], [CODEX, 'exec', 'x']), { ...expected, pid: 10 })
  assert.equal(find(['/bin/sh'], ['/usr/bin/node', '/usr/bin/codex'], ['/usr/bin/codex-like']), null)
})

test('a Codex whose file is not known by its whole path is called by its name', () => {
  assert.equal(find(['codex'])?.program, 'codex')
})

test('the shared daemon is told from the app server of an editor, which ends with the editor', () => {
  assert.equal(find([CODEX, 'app-server', '--listen', 'unix://'])?.isDaemon, true)
  assert.equal(find([CODEX, 'app-server'])?.isDaemon, false)
  assert.equal(find([CODEX, 'unix://'])?.isDaemon, false)
})

test('runs of one turn are known by their command', () => {
  for (const args of [['exec', 'x'], ['-c', 'model="m"', 'e', 'x'], ['review']]) {
    assert.equal(find([CODEX, ...args])?.isOneTurn, true, args.join(' '))
  }
  assert.equal(find([CODEX, 'resume', '--last'])?.isOneTurn, false)
})

test('only an interactive Codex is a window', () => {
  const list = (...args: string[]) => [{ pid: 2 ** 30, parent: 1, program: CODEX, args: [CODEX, ...args] }]
  assert.equal(
    hasWindow(undefined, () => list()),
    true,
  )
  assert.equal(
    hasWindow(undefined, () => list('app-server', '--listen', 'unix://')),
    false,
  )
  assert.equal(
    hasWindow('/elsewhere', () => list()),
    false,
  )
})
