import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { test } from 'node:test'
import { readSettings } from '../../scripts/lib/config.cjs'
import { TOKEN } from './listener-process.ts'
import { CONNECTED, setUp } from './listener-setup.ts'

const NOT_TRUSTED = 'PATCHCORD: stopped: server or token not trusted yet, run patchcord connect in a terminal'
const NO_LONGER = 'PATCHCORD: stopped: server or token not trusted any more, run patchcord connect in a terminal'

test('whatever a session of Claude Code or Codex leaves in the environment tells that a model has started us', () => {
  for (const env of [
    { CLAUDECODE: '1' },
    { CLAUDECODE: 'true' },
    { CODEX_THREAD_ID: 'x' },
    { CODEX_SESSION_ID: 'x' },
    { CODEX_SANDBOX: 'seatbelt' },
    { CODEX_SANDBOX_NETWORK_DISABLED: '1' },
  ]) {
    assert.equal(readSettings(env).isStartedByModel, true, JSON.stringify(env))
  }
  for (const env of [{}, { CLAUDECODE: '' }, { CODEX_SANDBOX: '' }, { CODEX_HOME: '/x' }, { MY_CODEX_SANDBOX: '1' }]) {
    assert.equal(readSettings(env).isStartedByModel, false, JSON.stringify(env))
  }
})

test('a listener that a model of Codex has started trusts nobody', async (context) => {
  const { server, home } = await setUp(context)
  await home.trust()
  const listener = home.start({ env: { CODEX_SANDBOX_NETWORK_DISABLED: '1' } })
  assert.equal(await listener.exitCode(), 1)
  assert.deepEqual(listener.lines, [NOT_TRUSTED])
  assert.deepEqual([server.connectionCount, await home.readTrusted()], [0, []])
})

test('a listener that a model has started ends when its agent is trusted no longer, and only then', async (context) => {
  const { server, home } = await setUp(context)
  const listener = home.start({ env: { CLAUDECODE: '1' } })
  await listener.logged(CONNECTED)
  await home.trust(server.origin, 'https://other.example')
  server.deliver('alice')
  await listener.line('PATCHCORD: 1 new from alice')
  await home.trust('https://other.example')
  assert.equal(await listener.exitCode(), 1)
  assert.deepEqual(listener.lines, ['PATCHCORD: 1 new from alice', NO_LONGER])
  await home.hasNoPidfile()
})

test('with --once a listener by hand records nothing', async (context) => {
  const { server, home } = await setUp(context)
  await home.trust('https://other.example')
  const before = await home.readTrusted()
  const env = { PATCHCORD_URL: server.origin, PATCHCORD_TOKEN: TOKEN }
  const listener = home.start({ args: ['--once'], env })
  await listener.logged(CONNECTED)
  assert.deepEqual([existsSync(home.trustFile), await home.readTrusted()], [true, before])
  assert.equal(await listener.stop(), 0)
})
