import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { listAxeViolations, measureWeight, openBrowser, openPage, signInPage, VIEWPORTS } from './helpers/browser.ts'
import { createScene, type Scene } from './helpers/scene.ts'

const WEIGHT_BYTES_MAX = 60 * 1024
/** A folder for pictures of every page, for whoever wants to look at them. */
const SCREENSHOTS = process.env.PATCHCORD_TEST_SCREENSHOTS

/** Every page that a person can open, with a namespace in use behind it. */
describe('each page', { timeout: 300_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  let scene: Scene
  let chromium: Awaited<ReturnType<typeof openBrowser>>
  let opened: Awaited<ReturnType<typeof openPage>>
  let pages: Record<string, string>
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    scene = await createScene(database)
    chromium = await openBrowser()
    opened = await openPage(chromium.browser)
    await signInPage(opened.page, app.url, database.admin)
    pages = {
      home: '/',
      account: '/account',
      agents: '/n/acme/agents',
      agent: '/n/acme/agents/backend',
      'agent-new': '/n/acme/agents/infrastructure-and-release',
      tokens: '/n/acme/tokens',
      messages: '/n/acme/messages',
      'messages-filtered': '/n/acme/messages?agent=docs&text=flag',
      message: `/n/acme/messages/${scene.answeredId}`,
      'message-waiting': `/n/acme/messages/${scene.waitingId}`,
      threads: '/n/acme/threads',
      thread: `/n/acme/threads/${scene.threadId}`,
      activity: '/n/acme/activity',
      members: '/n/acme/members',
      audit: '/n/acme/audit',
      settings: '/n/acme/settings',
      missing: '/n/nobody/agents',
    }
  })
  after(async () => {
    await chromium?.close()
    await app?.close()
    await database?.drop()
  })

  test('has nothing that axe finds, fits its screen, and logs no error, at 390 and 1280 px in both themes', async () => {
    const { page, errors } = opened
    if (SCREENSHOTS) await mkdir(SCREENSHOTS, { recursive: true })
    for (const [name, path] of Object.entries(pages)) {
      for (const { width, colorScheme } of VIEWPORTS) {
        const where = `${name}, ${width} px, ${colorScheme}`
        await page.setViewportSize({ width, height: 900 })
        await page.emulateMedia({ colorScheme })
        await page.goto(`${app.url}${path}`)
        assert.deepEqual(await listAxeViolations(page), [], where)
        const overflow = await page.evaluate(
          'document.documentElement.scrollWidth - document.documentElement.clientWidth',
        )
        assert.equal(overflow, 0, `${where} is wider than its screen`)
        if (SCREENSHOTS) {
          await page.screenshot({ path: join(SCREENSHOTS, `${name}-${width}-${colorScheme}.png`), fullPage: true })
        }
      }
    }
    // What is not there is answered so, which Chromium counts as an error.
    assert.deepEqual(
      errors.filter((error) => !/status of 404/.test(error)),
      [],
    )
  })

  test('weighs 60 kB at most, gzipped, with everything that it loads', async () => {
    const { page } = opened
    for (const [name, path] of Object.entries(pages)) {
      const bytes = await measureWeight(page, `${app.url}${path}`)
      assert.ok(bytes > 1_000 && bytes <= WEIGHT_BYTES_MAX, `${name}: ${bytes} bytes`)
    }
  })
})
