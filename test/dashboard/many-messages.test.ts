import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { hashCode } from '../../server/domain/codes.ts'
import { exportMessages } from '../../server/domain/message-list.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { type Browser, signIn } from '../helpers/dashboard.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seedMessages } from '../helpers/many-messages.ts'

/** In each of two namespaces; what is measured with 100,000 is in the ratio of what indexes hold. */
const COUNT = 20_000
/** Alone on a machine no page takes 100 ms, also of five times as many messages; others run here, too. */
const MS_MAX = 500

describe('a namespace with many messages beside another', () => {
  let database: TestDatabase
  let app: TestApp
  let browser: Browser
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    await seedMessages(database.admin, 'acme', COUNT)
    await seedMessages(database.admin, 'other', COUNT)
    browser = await signIn(app, database)
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  /** The fastest of three, since what is asked is what it costs and not who else was busy. */
  async function measure(path: string): Promise<{ ms: number; text: string; html: string }> {
    let best = { ms: Number.POSITIVE_INFINITY, text: '', html: '' }
    for (let tries = 0; tries < 3; tries++) {
      const startedAt = performance.now()
      const page = await browser.get(`/n/acme/${path}`)
      const ms = performance.now() - startedAt
      assert.equal(page.status, 200, path)
      if (ms < best.ms) best = { ms, text: page.text, html: page.html }
    }
    return best
  }

  const LISTS = [
    'messages',
    'messages?agent=agent-03',
    'messages?agent=agent-03&direction=from',
    ...['new', 'open', 'deferred', 'answered', 'done', 'resolved', 'unsent', 'expired'].map(
      (state) => `messages?state=${state}`,
    ),
    'messages?kind=question',
    'messages?kind=request',
    'messages?thread=thread-7',
    'messages?text=needle',
    'messages?text=migration',
    'messages?text=%22of+tests%22',
    'messages?text=service42&agent=agent-05&state=expired',
    'messages?agent=agent-01&direction=from&kind=report&state=answered',
    'messages?kind=message&state=unsent&agent=agent-02&direction=to&thread=thread-9',
  ]
  for (const path of LISTS) {
    test(`${path} is quick, on its first page and on the next`, async () => {
      const first = await measure(path)
      assert.ok(first.ms < MS_MAX, `${Math.round(first.ms)} ms`)
      const next = /href="\/n\/acme\/([^"]+)" rel="next"/.exec(first.html)?.[1]?.replaceAll('&amp;', '&')
      if (next === undefined) return
      const second = await measure(next)
      assert.ok(second.ms < MS_MAX, `${Math.round(second.ms)} ms`)
    })
  }

  test('a message, threads, a thread, and activity of a day and a week are quick', async () => {
    const list = await measure('messages')
    const id = /href="\/n\/acme\/messages\/([0-9a-f-]{36})"/.exec(list.html)?.[1]
    const threads = await measure('threads')
    const threadId = /href="\/n\/acme\/threads\/([0-9a-f-]{36})"/.exec(threads.html)?.[1]
    for (const path of [`messages/${id}`, 'threads', `threads/${threadId}`, 'activity', 'activity?range=7d']) {
      const { ms } = await measure(path)
      assert.ok(ms < MS_MAX, `${path}: ${Math.round(ms)} ms`)
    }
  })

  test('a search finds all that is there, page after page, and what is rare by looking further back', async () => {
    const found = await browser.get('/n/acme/messages?text=needle')
    assert.equal(found.html.match(/data-row=/g)?.length, COUNT / 5_000)
    let path = '/n/acme/messages?kind=report&state=unsent&agent=agent-08'
    let rows = 0
    for (let pages = 0; ; pages++) {
      assert.ok(pages < 40, 'it ends')
      const page = await browser.get(path)
      rows += page.html.match(/data-row=/g)?.length ?? 0
      const next = /href="([^"]+)" rel="next"/.exec(page.html)?.[1]
      if (next === undefined) break
      assert.match(page.text, /Look further back|Show more/)
      path = next.replaceAll('&amp;', '&')
    }
    const [expected] = await database.admin`
      select count(distinct m.id)::integer as count from patchcord.agent_messages m
        join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
        join patchcord.agents a on a.name = 'agent-08' and a.id in (m.from_agent_uuid, m.to_agent_uuid)
        join patchcord.namespaces n on n.id = m.to_namespace_uuid and n.name = 'acme'
      where d.state = 'unsent' and m.kind = 'report'`
    assert.equal(rows, expected?.count)
  })

  test('an export that finds nothing hands over between its looks, and so ends with whoever has gone', async () => {
    const scope = { sql: database.api, sessionHash: hashCode(browser.cookies.get('__Host-patchcord') ?? '') }
    const pages = exportMessages(scope, {
      namespace: 'acme',
      filters: { kind: 'message', state: 'unsent', text: '-step' },
    })
    const first = await pages.next()
    assert.deepEqual(first, { value: [], done: false })
    await pages.return(undefined)
  })
})
