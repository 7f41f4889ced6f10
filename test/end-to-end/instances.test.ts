import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import {
  connectMcp,
  createTemporaryFolder,
  startListener,
  untilWakeable,
  watchFirstLook,
} from '../helpers/processes.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const LINE_TIMEOUT_MS = 20_000

/** Two whole servers on one database, with everything between them, and the real listener as a process. */
describe('two instances', () => {
  let database: TestDatabase
  let folder: Awaited<ReturnType<typeof createTemporaryFolder>>
  const closers: (() => Promise<unknown>)[] = []
  let here: TestApp
  let there: TestApp

  async function listen(app: TestApp, { agent, token }: SeededAgent) {
    const home = join(folder.path, `${agent}-${closers.length}`)
    await mkdir(home, { mode: 0o700 })
    const hasLooked = watchFirstLook(app.app.server, token)
    const listener = await startListener({ url: app.url, token, home })
    closers.push(() => listener.stop())
    await hasLooked()
    await untilWakeable(app.url, token)
    return listener
  }

  before(async () => {
    database = await createTestDatabase()
    folder = await createTemporaryFolder()
    here = await startInstance(database)
    there = await startInstance(database)
    closers.push(here.close, there.close)
  })
  after(async () => {
    for (const close of closers.reverse()) await close()
    await folder.remove()
    await database.drop()
  })

  test('a question on one wakes the listener on the other, and the answer there wakes the asker here', async () => {
    const { alice, bob } = await seed(database, 'two', ['alice', 'bob'])
    const [aliceListens, bobListens] = [await listen(here, alice), await listen(there, bob)]
    const [asker, answerer] = [await connectMcp(here.url, alice.token), await connectMcp(there.url, bob.token)]
    closers.push(asker.close, answerer.close)
    const sent = await asker.call('send_message', { to: 'bob', content: 'are you there?' })
    assert.match(sent.text, /^Sent to bob \[[0-9a-f-]{36}\]: wakeable$/)
    await waitForLine(bobListens.lines, 'PATCHCORD: 1 new from alice')
    const inbox = await answerer.call('inbox')
    assert.match(inbox.text, /^bob@two \| 1 new, 0 open, 0 deferred \| you: wakeable\n/)
    const [message] = inbox.data.messages as { message_id: string }[]
    await answerer.call('reply', { message_id: message?.message_id, content: 'yes' })
    await waitForLine(aliceListens.lines, 'PATCHCORD: 1 new from bob')
  })

  test('a send on one ends a wait_for_message on the other', async () => {
    const { carol, dave } = await seed(database, 'two-wait', ['carol', 'dave'])
    const waiter = await connectMcp(there.url, dave.token)
    const sender = await connectMcp(here.url, carol.token)
    closers.push(waiter.close, sender.close)
    const waiting = waiter.call('wait_for_message', { timeout_seconds: 60 })
    const deadline = Date.now() + LINE_TIMEOUT_MS
    while ([...there.deps.waiters.agentIds()].length === 0 && Date.now() < deadline) await pause(10)
    await sender.call('send_message', { to: 'dave', content: 'now' })
    assert.match((await waiting).text, /\nnow\n/)
  })
})

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

async function waitForLine(lines: { text: string }[], wanted: string): Promise<void> {
  const deadline = Date.now() + LINE_TIMEOUT_MS
  while (!lines.some((line) => line.text === wanted)) {
    if (Date.now() > deadline)
      assert.fail(`no line "${wanted}" among ${JSON.stringify(lines.map((line) => line.text))}`)
    await pause(10)
  }
}
