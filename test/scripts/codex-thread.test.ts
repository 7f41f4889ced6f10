import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import {
  createThreadPidfile,
  findActiveThread,
  hasListener,
  isThreadId,
  listThreadFiles,
  listThreads,
  readThread,
  removeOldThreads,
  writeThread,
} from '../../scripts/lib/codex-thread.mjs'
import { createThreadId } from './codex-fake.ts'

const DAY_MS = 24 * 3_600_000

function setUp(context: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), 'patchcord-threads-'))
  context.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

function record(thread: string, more: Partial<Parameters<typeof writeThread>[1]> = {}) {
  const codex = { pid: process.pid, startTime: null, program: 'codex', isDaemon: false }
  const times = { changedAt: 1, turnAt: 1, promptedAt: 1 }
  return { thread, folder: '/project', state: 'idle' as const, ...times, codex, ...more }
}

test('a thread is kept in a file of its own that only its user can read', (context) => {
  const folder = setUp(context)
  const thread = createThreadId()
  writeThread(folder, record(thread))
  writeThread(folder, record(thread, { state: 'busy' }))
  assert.deepEqual(readThread(folder, thread), record(thread, { state: 'busy' }))
  assert.equal(
    statSync(listThreadFiles(folder, thread).state).mode & 0o777,
    process.platform === 'win32' ? 0o666 : 0o600,
  )
  assert.deepEqual(
    listThreads(folder).map((one) => one.thread),
    [thread],
  )
})

test('what is no id of Codex becomes no part of a path or of a command', () => {
  for (const text of ['', '../../etc/passwd', '--help', createThreadId().toUpperCase(), `${createThreadId()}\n`, 7]) {
    assert.equal(isThreadId(text), false, String(text))
  }
})

test('a damaged file, or one of somebody else behind a link, is no thread', (context) => {
  const folder = setUp(context)
  for (const text of ['', '{', '[]', '{"thread":1}', JSON.stringify({ ...record(createThreadId()), codex: null })]) {
    const thread = createThreadId()
    writeFileSync(listThreadFiles(folder, thread).state, text)
    assert.equal(readThread(folder, thread), null, text)
  }
  const [real, linked] = [createThreadId(), createThreadId()]
  writeThread(folder, record(real))
  symlinkSync(listThreadFiles(folder, real).state, listThreadFiles(folder, linked).state)
  assert.equal(readThread(folder, linked), null)
  assert.equal(listThreads(folder).length, 1)
})

test('the thread to wake is the one in which a person typed last, of those that can be woken', () => {
  const [a, b, c, d] = [createThreadId(), createThreadId(), createThreadId(), createThreadId()]
  const threads = [
    record(a, { promptedAt: 10 }),
    record(b, { promptedAt: 30 }),
    record(c, { promptedAt: 40, state: 'ended' }),
    record(d, { promptedAt: 50 }),
  ]
  assert.equal(
    findActiveThread(threads, (thread) => thread !== d),
    b,
  )
  assert.equal(
    findActiveThread(threads, () => false),
    null,
  )
})

test('a thread has one listener, known by its process and not by a number alone', (context) => {
  const folder = setUp(context)
  const thread = createThreadId()
  assert.equal(hasListener(folder, thread), false)
  const pidfile = createThreadPidfile(folder, thread)
  assert.equal(pidfile.claim(), null)
  assert.equal(hasListener(folder, thread), true)
  assert.equal(createThreadPidfile(folder, thread).claim(), process.pid)
  const file = join(folder, `subscribe_codex-thread_${thread}.pid`)
  if (process.platform === 'linux') {
    writeFileSync(file, `${process.pid}\n1\ncodex ${thread}@codex-thread\n`)
    assert.equal(hasListener(folder, thread), false, 'the number was used again')
  }
  rmSync(file)
})

test('what threads leave behind after a power cut is removed after a day, unless their listener lives', (context) => {
  const folder = setUp(context)
  const [old, living, fresh] = [createThreadId(), createThreadId(), createThreadId()]
  const now = Date.now()
  for (const thread of [old, living]) writeThread(folder, record(thread, { changedAt: now - 2 * DAY_MS }))
  writeThread(folder, record(fresh, { changedAt: now }))
  const { log } = listThreadFiles(folder, old)
  writeFileSync(log, '')
  utimesSync(log, 1, 1)
  const pidfile = createThreadPidfile(folder, living)
  pidfile.claim()
  removeOldThreads(folder)
  assert.deepEqual(
    listThreads(folder)
      .map((one) => one.thread)
      .sort(),
    [living, fresh].sort(),
  )
  assert.equal(existsSync(log), false)
  pidfile.release()
})
