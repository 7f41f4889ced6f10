import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { assertSilent, hookEvent as event, HookServer, runHook, setUpHooks as setUp } from './hook-process.ts'
import { entry, TOKEN } from './listener-process.ts'

describe('presence', { concurrency: 4 }, () => {
  const who = { client: 'claude-code', session: 'session-1' }

  test('is busy from a prompt to the end of the turn, and a person is reported only when one has typed', async (context) => {
    const { server, home } = await setUp(context)
    const machine = /^[A-Za-z0-9]/
    assertSilent(await runHook(home, event('UserPromptSubmit', { prompt: 'hello' })))
    for (const prompt of [
      '<task-notification><task-id>1</task-id>',
      '\n <task-notification>',
      'PATCHCORD: 1 new from alice',
    ]) {
      assertSilent(await runHook(home, event('UserPromptSubmit', { prompt })))
    }
    assertSilent(await runHook(home, event('Stop')))
    assertSilent(await runHook(home, event('SessionEnd', { reason: 'clear' })))
    assertSilent(await runHook(home, event('SessionEnd', { reason: 'other' })))
    const reports = server.presence as Record<string, unknown>[]
    for (const report of reports) assert.match(String(report.machine), machine)
    const busy = { ...who, state: 'busy' }
    const idle = { ...who, state: 'idle' }
    assert.deepEqual(
      reports.map(({ machine: _, ...report }) => report),
      [{ ...busy, human_prompt: true }, busy, busy, busy, idle, idle],
    )
  })

  test('names the client, and a session id of any shape becomes a label that the API takes', async (context) => {
    const { server, home } = await setUp(context)
    const options = { args: ['--client', 'codex'] }
    for (const session of ['a b\n<c>', '../../etc/passwd', 'x'.repeat(300), 7, undefined]) {
      assertSilent(await runHook(home, event('Stop', { session_id: session }), options))
    }
    const label = /^[A-Za-z0-9][\w.:@/+-]{0,39}$/
    for (const report of server.presence as { client: string; session: string }[]) {
      assert.equal(report.client, 'codex')
      assert.match(report.session, label)
    }
    const files = await readdir(join(home.runtime, 'patchcord'))
    assert.ok(
      files.every((file) => /^hook_[\w.-]{1,40}\.json$/.test(file)),
      files.join(' '),
    )
  })

  test('stays busy while the end of the turn is held up', async (context) => {
    const { server, home } = await setUp(context)
    server.deliver('alice')
    assert.match((await runHook(home, event('Stop'))).stdout, /"block"/)
    assert.deepEqual(server.presence, [])
    // Said before, so the turn ends, and the message goes on waiting.
    assertSilent(await runHook(home, event('Stop')))
    assert.deepEqual(
      server.presence.map((report) => (report as { state: string }).state),
      ['idle'],
    )
  })

  test('stays busy for every agent of the project while a message to one of them holds the end up', async (context) => {
    const { server, home } = await setUp(context)
    const other = await HookServer.open()
    context.after(() => other.close())
    const origins = { patchcord: server.origin, 'patchcord-2': other.origin }
    await home.trust(...Object.values(origins))
    const entries = Object.entries(origins).map(([name, origin]) => [name, entry(origin, TOKEN)])
    await home.writeMcpJson({ mcpServers: Object.fromEntries(entries) })
    server.deliver('alice')
    assert.match((await runHook(home, event('Stop'))).stdout, /"block"/)
    assert.deepEqual(server.presence, [])
    assert.equal((other.presence.at(-1) as { state: string }).state, 'busy')
  })

  test('and what is new cost one request together', async (context) => {
    const { server, home } = await setUp(context)
    for (const name of ['UserPromptSubmit', 'Stop', 'SessionStart', 'SessionEnd']) {
      const before = server.requests.length
      assert.equal((await runHook(home, event(name))).code, 0)
      assert.equal(server.requests.length - before, 1, name)
    }
  })
})
