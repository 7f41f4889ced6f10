import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, test } from 'node:test'
import type { Page } from 'playwright-core'
import { sendMessage } from '../../server/domain/messages.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { openBrowser, openPage, signInPage } from './helpers/browser.ts'

/** More than a screen of messages. */
const MANY = 40

/** What the pages' own scripts add to them. */
describe('the scripts of the pages', { timeout: 240_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  let chromium: Awaited<ReturnType<typeof openBrowser>>
  let page: Page
  let agents: Record<'alice' | 'bob', SeededAgent>
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    chromium = await openBrowser()
    const opened = await openPage(chromium.browser)
    page = opened.page
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await signInPage(page, app.url, database.admin)
    agents = await seed(database, 'acme', ['alice', 'bob'], { bus: app.deps.bus, limits: { sendBurst: 1_000 } })
  })
  beforeEach(() => page.setViewportSize({ width: 1280, height: 700 }))
  after(async () => {
    await chromium?.close()
    await app?.close()
    await database?.drop()
  })

  const send = (content: string) => agents.alice((scope) => sendMessage(scope, { to: 'bob', content, kind: 'report' }))
  const at = (path: string) => page.goto(`${app.url}${path}`)

  test('a new message appears at the top of the list by itself, with its state as it changes', async () => {
    await at('/n/acme/messages')
    await page.getByText('No agent has said anything yet').waitFor()
    const sent = await send('the first of all')
    await page.getByText('the first of all').waitFor()
    const row = page.locator(`#row-${sent.message_id}`)
    await row.getByText('new', { exact: true }).waitFor()
    await database.admin`
      update patchcord.deliveries set state = 'done', fetched_at = clock_timestamp(), done_at = clock_timestamp(),
        settled_at = clock_timestamp() where message_id = ${sent.message_id}`
    await row.getByText('done', { exact: true }).waitFor()
  })

  test('whoever reads further below is told of new messages, and nothing moves until they ask for them', async () => {
    for (let i = 0; i < MANY; i++) await send(`number ${i}`)
    await at('/n/acme/messages')
    await page.getByText(`number ${MANY - 1}`).waitFor()
    await page.evaluate('scrollTo(0, 900)')
    const eye = page.getByText('number 20', { exact: true })
    const before = await eye.boundingBox()
    await send('while you read')
    const show = page.getByRole('button', { name: '1 new message: show' })
    await show.waitFor()
    assert.equal(await page.getByText('while you read').count(), 0)
    assert.deepEqual(await eye.boundingBox(), before)
    await show.click()
    await page.getByText('while you read').waitFor()
  })

  test('a page whose server is gone says that it is paused, and goes on when the server is back', async () => {
    await at('/n/acme/messages')
    const port = Number(new URL(app.url).port)
    await app.close()
    await page.evaluate('dispatchEvent(new Event("online"))')
    await page.getByText('Paused: the server cannot be reached. It is tried again.').waitFor()
    app = await startTestApp(database, { port })
    await send('after the restart')
    await page.getByText('after the restart').waitFor()
    await page.getByText('Paused: the server cannot be reached').waitFor({ state: 'hidden' })
  })

  test('the list of agents says by itself that its server is gone', async () => {
    await at('/n/acme/agents')
    await page.waitForTimeout(500)
    const port = Number(new URL(app.url).port)
    await app.close()
    await page.getByText('Paused: the server cannot be reached. It is tried again.').waitFor({ timeout: 5_000 })
    app = await startTestApp(database, { port })
    await page.getByText('Paused: the server cannot be reached').waitFor({ state: 'hidden' })
  })

  test('an open page shows that its namespace was paused, and that it runs again', async () => {
    await at('/n/acme/agents')
    const setPausedTo = (paused: boolean) =>
      database.admin`update patchcord.namespaces set paused_at = ${paused ? new Date() : null} where name = 'acme'`
    const banner = page.getByText('This namespace is paused')
    await setPausedTo(true)
    await page.evaluate('dispatchEvent(new Event("online"))')
    await banner.waitFor()
    await page.getByText(/^Paused .*An owner or an admin can resume it in Settings\.$/).waitFor()
    await setPausedTo(false)
    await page.evaluate('dispatchEvent(new Event("online"))')
    await banner.waitFor({ state: 'hidden' })
  })

  test('an open page whose agent has another name now says so, and asks no more', async () => {
    const rename = (from: string, to: string) =>
      database.admin`update patchcord.agents set name = ${to} where name = ${from}`
    await at('/n/acme/agents/alice')
    await rename('alice', 'alicia')
    await page.evaluate('dispatchEvent(new Event("online"))')
    await page.getByText('Paused: this is not here any more, or has another name. Reload the page.').waitFor()
    await rename('alicia', 'alice')
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    await page.evaluate('dispatchEvent(new Event("online"))')
    await page.waitForTimeout(500)
    assert.deepEqual(
      asked.filter((url) => url.includes('fragment=')),
      [],
    )
  })

  test('a secret is copied by its button; whoever leaves without having copied it is asked, once', async () => {
    const asked: string[] = []
    page.on('dialog', async (dialog) => {
      asked.push(dialog.type())
      await dialog.dismiss()
    })
    const makeToken = async () => {
      await at('/n/acme/tokens?agent=alice&new=1')
      await page.getByLabel('Label', { exact: true }).fill('lap-3')
      await page.getByRole('button', { name: 'Create token' }).click()
      return (await page.locator('#secret').textContent())?.trim()
    }
    await makeToken()
    const url = page.url()
    await page.getByRole('link', { name: 'Audit' }).click()
    await page.waitForTimeout(500)
    assert.deepEqual([asked, page.url()], [['beforeunload'], url])
    await page.getByRole('link', { name: 'Audit' }).click()
    await page.waitForURL(/\/audit$/)
    assert.deepEqual(asked, ['beforeunload'])

    const secret = await makeToken()
    await page.locator('.secret').getByRole('button', { name: 'Copy' }).click()
    await page.getByRole('button', { name: 'Copied' }).waitFor()
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), secret)
    await page.getByRole('link', { name: 'Audit' }).click()
    await page.waitForURL(/\/audit$/)
    assert.deepEqual(asked, ['beforeunload'])
  })

  test('the theme changes in place and is kept', async () => {
    await at('/n/acme/agents')
    const theme = () => page.evaluate('document.documentElement.dataset.theme')
    const stored = page.waitForResponse((response) => response.request().method() === 'POST')
    await page.getByRole('button', { name: 'Dark' }).click()
    assert.equal(await theme(), 'dark')
    await stored
    await page.reload()
    assert.equal(await theme(), 'dark')
  })
})
