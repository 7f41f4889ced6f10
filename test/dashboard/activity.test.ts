import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { unsendMessage } from '../../server/domain/delivery.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { type Browser, signIn } from '../helpers/dashboard.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { say } from '../helpers/talk.ts'

describe('the page of activity', () => {
  let database: TestDatabase
  let app: TestApp
  let browser: Browser
  let acme: Record<'alice' | 'bob' | 'carol', SeededAgent>
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    acme = await seed(database, 'acme', ['alice', 'bob', 'carol'], { limits: { sendBurst: 1_000 } })
    const { eve } = await seed(database, 'evil', ['eve', 'mallory'])
    await say(eve, { to: 'mallory', content: 'not of acme' })
    browser = await signIn(app, database)
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  test('of a namespace in which nothing was said says so', async () => {
    const page = await browser.get('/n/acme/activity')
    assert.match(page.text, /0 in 24 hours.*Nothing was delivered yet.*Everything got through/)
    assert.match(page.text, /has waited for more than 2 minutes without a listener having told its agent/)
    assert.match(page.html, /\d\d:00 UTC/)
  })

  test('shows messages per hour and how fast they got through, as pictures and as tables of the same numbers', async () => {
    const { alice } = acme
    for (const seconds of [1, 2, 3, 100]) {
      const id = await say(alice, { to: 'bob', content: 'x', kind: 'report' })
      await database.admin`
        update patchcord.deliveries d set notified_at = b.sent_at + interval '20 ms', fetched_at = b.sent_at + make_interval(secs => ${seconds}),
          state = 'open'
        from patchcord.message_bodies b where b.id = d.message_id and d.message_id = ${id}`
    }
    await say(alice, { to: 'alice', content: 'a note goes nowhere' })
    const page = await browser.get('/n/acme/activity')
    assert.match(page.text, /5 in 24 hours/)
    assert.match(page.text, /Of the latest 4 deliveries/)
    assert.match(page.text, /Time to notified.*20 ms median.*95 % within 20 ms/)
    assert.match(page.text, /Time to fetched.*2\.5 s median.*95 % within 1 min 25 s/)
    assert.match(page.text, /Time to answered.*none of them was/)
    const rows = [...page.html.matchAll(/<tr><th scope="row">(\w+)<\/th>((?:<td class="number">[^<]*<\/td>)+)/g)]
    const numbers = Object.fromEntries(
      rows.map(([, step, cells]) => [step, [...(cells ?? '').matchAll(/>([^<]+)</g)].map((cell) => cell[1])]),
    )
    assert.deepEqual(numbers.fetched, ['4', '2.5 s', '1 min 25 s', '0', '0', '3', '0', '1', '0', '0'])
    assert.equal((page.html.match(/<svg[^>]* role="img" aria-label="[^"]+/g) ?? []).length, 3)
    assert.doesNotMatch(page.html, / style=/)
    assert.equal((page.html.match(/<tr><th scope="row">[\w ,]+, \d\d:00 UTC<\/th>/g) ?? []).length, 24)
    const week = await browser.get('/n/acme/activity?range=7d')
    assert.match(week.text, /5 in 7 days/)
    assert.equal((week.html.match(/<tr><th scope="row">[\w ,]+, \d\d:00 UTC<\/th>/g) ?? []).length, 168)
  })

  test('lists what expired, was taken back, is held or waits unannounced, each with the way to it', async () => {
    const { alice, bob, carol } = acme
    const expired = await say(alice, { to: 'carol', content: 'in time?', expires_in: 3_600 })
    const unsent = await say(bob, { to: 'carol', content: 'a hidden text' })
    const held = await say(alice, { to: 'carol', content: 'held words' })
    const waiting = await say(alice, { to: 'carol', content: 'waiting words' })
    await bob((scope) => unsendMessage(scope, { message_id: unsent }))
    await database.admin`update patchcord.deliveries set expires_at = clock_timestamp() where message_id = ${expired}`
    await database.api`select patchcord.read_back(10, null)`
    await database.admin`update patchcord.deliveries set held = true, wake_at = clock_timestamp() + interval '5 minutes' where message_id = ${held}`
    await database.admin`update patchcord.deliveries set wake_at = clock_timestamp() - interval '5 minutes' where message_id = ${waiting}`
    const page = await browser.get('/n/acme/activity')
    for (const [id, word] of Object.entries({
      [expired]: 'expired',
      [unsent]: 'taken back',
      [held]: 'held by the loop budget',
      [waiting]: 'waits, nobody told',
    })) {
      assert.match(page.html, new RegExp(`href="/n/acme/messages/${id}"[\\s\\S]*?${word}`), word)
    }
    assert.doesNotMatch(page.html, /a hidden text|not of acme/)
    assert.equal(carol.agent, 'carol')
  })
})
