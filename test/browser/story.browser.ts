import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type { Locator, Page } from 'playwright-core'
import {
  connectMcp,
  createTemporaryFolder,
  type ListenerProcess,
  type RunningServer,
  runAdmin,
  startListener,
  startServer,
} from '../helpers/processes.ts'
import { openBrowser, openPage } from './helpers/browser.ts'

/** From the answer to a revocation to the end of what its token had opened. */
const END_MS_MAX = 1_000

type Folder = Awaited<ReturnType<typeof createTemporaryFolder>>

/** The whole way of a person: from the printed link to the log that says what was done, with real agents on the other side. */
for (const javaScriptEnabled of [true, false]) {
  describe(`the dashboard, with JavaScript ${javaScriptEnabled ? 'on' : 'off'}`, { timeout: 240_000 }, () => {
    let folder: Folder
    let server: RunningServer
    let chromium: Awaited<ReturnType<typeof openBrowser>>
    let page: Page
    let errors: string[]
    const closers: (() => Promise<unknown>)[] = []
    before(async () => {
      folder = await createTemporaryFolder()
      server = await startServer({ dataDir: `${folder.path}/data` })
      chromium = await openBrowser()
      const opened = await openPage(chromium.browser, { javaScriptEnabled })
      page = opened.page
      errors = opened.errors
    })
    after(async () => {
      for (const close of closers.reverse()) await close()
      await chromium?.close()
      await server?.stop()
      await folder?.remove()
    })

    /** Makes a token in the page that is open, and reads it there: it is shown this once. */
    async function makeToken(agent: string): Promise<string> {
      await page.getByRole('link', { name: 'Make a token' }).click()
      assert.equal(await page.getByLabel('Agent', { exact: true }).first().inputValue(), agent)
      await page.getByLabel('Label', { exact: true }).fill(`of ${agent}`)
      await page.getByRole('button', { name: 'Create token' }).click()
      return await readSecret()
    }

    const textOf = async (place: string) => (await page.locator(place).textContent()) ?? ''

    async function readSecret(): Promise<string> {
      const secret = (await textOf('#secret')).trim()
      assert.match(secret, /^pc_[\w-]{49}$/)
      return secret
    }

    /** Leaves the page of a secret as a person does who has copied it: else the browser asks. */
    async function copySecret(): Promise<void> {
      if (!javaScriptEnabled) return
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
      await page.locator('.secret').getByRole('button', { name: 'Copy' }).click()
    }

    /** Waits until something is seen: by itself with JavaScript, else by loading the page again. */
    async function see(what: Locator): Promise<void> {
      if (javaScriptEnabled) return await what.first().waitFor()
      for (let tries = 0; tries < 60 && !(await what.first().isVisible()); tries++) {
        await new Promise((resolve) => setTimeout(resolve, 500))
        await page.reload()
      }
      await what.first().waitFor()
    }

    async function listen(
      agent: string,
      token: string,
    ): Promise<ListenerProcess & { log: { text: string; at: number }[] }> {
      const home = await createTemporaryFolder()
      const listener = await startListener({ url: server.url, token, home: home.path })
      const log: { text: string; at: number }[] = []
      listener.onLog((text) => log.push({ text: `${agent}: ${text}`, at: performance.now() }))
      closers.push(home.remove, () => listener.stop())
      return { ...listener, log }
    }

    test('login link → namespace → agent → token → listener and client → message and its ledger → rotate → revoke → audit', async (t) => {
      const { url } = (await runAdmin(`${folder.path}/data`, 'login-link')) as { url: string }
      await page.goto(url)
      await page.getByRole('button', { name: /sign in/i }).click()
      await page.getByRole('heading', { level: 1, name: /first namespace/i }).waitFor()
      await page.getByRole('textbox', { name: 'Name' }).fill('acme')
      await page.getByRole('button', { name: 'Create namespace' }).click()

      await page.getByLabel('Name of the new agent').fill('backend')
      await page.getByRole('button', { name: 'Add', exact: true }).click()
      await page.getByRole('heading', { level: 1, name: 'backend' }).waitFor()
      const backendToken = await makeToken('backend')
      assert.match(await textOf('main'), /waiting for backend/i)
      const listener = await listen('backend', backendToken)
      // Loading the answer to a form again would send the form again.
      if (!javaScriptEnabled) await page.goto(`${server.url}/n/acme/agents/backend`)
      await see(page.getByText(/wakeable · lease/i))
      await copySecret()

      await page.goto(`${server.url}/n/acme/agents`)
      await see(page.getByText(/wakeable/i))
      if (await page.getByText('Add agent').isVisible()) await page.getByText('Add agent').click()
      await page.getByLabel('Name of the new agent').fill('frontend')
      await page.getByRole('button', { name: 'Add', exact: true }).click()
      const frontendToken = await makeToken('frontend')
      await copySecret()
      const [frontend, backend] = [
        await connectMcp(server.url, frontendToken),
        await connectMcp(server.url, backendToken),
      ]
      closers.push(frontend.close, backend.close)

      await page.goto(`${server.url}/n/acme/messages`)
      await frontend.call('send_message', { to: 'backend', content: 'Which <port> does the API listen on?' })
      await see(page.getByText('Which <port> does the API listen on?'))
      await t.test('the listener has told its agent', async () => {
        const deadline = Date.now() + 20_000
        while (listener.lines.length === 0 && Date.now() < deadline) await new Promise((r) => setTimeout(r, 20))
        assert.deepEqual(
          listener.lines.map(({ text }) => text),
          ['PATCHCORD: 1 new from frontend'],
        )
      })
      await page.getByRole('link', { name: /frontend.*backend/ }).click()
      await see(page.getByText(/notified \+/))
      const inbox = await backend.call('inbox')
      await see(page.getByText(/fetched \+/))
      const [message] = inbox.data.messages as { message_id: string }[]
      await backend.call('reply', { message_id: message?.message_id, content: 'On 8787.' })
      await see(page.getByText(/answered \+/))
      const story = await textOf('main')
      assert.match(story, /accepted \d\d:\d\d:\d\d\.\d{3} → notified \+.+ → fetched \+.+ → answered \+/)

      await t.test('rotated without an overlap, the socket of the old token dies within a second', async () => {
        await page.goto(`${server.url}/n/acme/agents/backend`)
        await page.getByLabel(/^Rotate of backend/).click()
        await page.getByLabel('The old token works').selectOption('0')
        const clickedAt = performance.now()
        await page.getByRole('button', { name: 'Rotate', exact: true }).click()
        const rotated = await readSecret()
        const answeredAt = performance.now()
        await copySecret()
        const deadline = Date.now() + 20_000
        const isClosed = () =>
          listener.log.find(({ text, at }) => at > clickedAt && /Token has been revoked|ws closed/.test(text))
        while (!isClosed() && Date.now() < deadline) await new Promise((r) => setTimeout(r, 5))
        const ms = (isClosed()?.at ?? Number.POSITIVE_INFINITY) - answeredAt
        assert.ok(ms < END_MS_MAX, `${ms} ms`)
        assert.equal(await listener.ended, 1)
        assert.equal(listener.lines.at(-1)?.text, 'PATCHCORD: stopped: token rejected (HTTP 403), check .mcp.json')
        const whoami = () => fetch(`${server.url}/api/whoami`, { headers: { authorization: `Bearer ${rotated}` } })
        assert.equal((await whoami()).status, 200)

        await page.goto(`${server.url}/n/acme/agents/backend`)
        await page.getByLabel(/^Revoke of backend/).click()
        await page.getByRole('button', { name: 'Revoke now' }).click()
        await page.getByRole('heading', { level: 1 }).waitFor()
        assert.equal((await whoami()).status, 403)
      })

      await page.getByRole('link', { name: 'Audit' }).click()
      const audit = await textOf('main')
      for (const sentence of [
        /founded the namespace/,
        /added the agent backend/,
        /made the token “of backend” of backend/,
        /added the agent frontend/,
        /rotated the token “of backend” of backend/,
        /revoked the token “of backend” of backend/,
      ]) {
        assert.match(audit, sentence)
      }
      assert.deepEqual(errors, [])
    })
  })
}
