import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core'
import type { Sql } from '../../../server/db/connect.ts'
import { createLoginLink } from '../../../server/domain/people.ts'
import { findProgram } from '../../helpers/debian.ts'

/** Nothing that looks for a network: names that cannot be resolved cost seconds each. */
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')
const ACTION_MS_MAX = 30_000

export interface Viewport {
  width: 390 | 1280
  colorScheme: 'light' | 'dark'
}
export const VIEWPORTS: readonly Viewport[] = [
  { width: 390, colorScheme: 'light' },
  { width: 390, colorScheme: 'dark' },
  { width: 1280, colorScheme: 'light' },
  { width: 1280, colorScheme: 'dark' },
]

/** Debian's Chromium with a HOME of its own; `close` it at the end. */
export async function openBrowser(): Promise<{ browser: Browser; close(): Promise<void> }> {
  const executablePath = await findProgram('chromium')
  if (executablePath === null) throw new Error('there is no chromium: npm run test:browser installs it')
  const home = await mkdtemp(join(tmpdir(), 'patchcord-browser-'))
  const env = { PATH: process.env.PATH ?? '', HOME: home }
  const browser = await chromium.launch({ executablePath, args: FLAGS, env })
  return {
    browser,
    async close() {
      await browser.close()
      await rm(home, { recursive: true, force: true, maxRetries: 3 })
    },
  }
}

/** A person's browser: cookies of its own. What a page logs as an error, or has refused by its own policy, is kept in `errors`. */
export async function openPage(
  browser: Browser,
  { javaScriptEnabled = true }: { javaScriptEnabled?: boolean } = {},
): Promise<{ context: BrowserContext; page: Page; errors: string[] }> {
  const context = await browser.newContext({ javaScriptEnabled, viewport: { width: 1280, height: 900 } })
  context.setDefaultTimeout(ACTION_MS_MAX)
  const page = await context.newPage()
  const errors: string[] = []
  page.on('pageerror', (error) => errors.push(String(error)))
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text())
  })
  return { context, page, errors }
}

/** What axe finds wrong with the page as it is now, a line each. */
export async function listAxeViolations(page: Page): Promise<string[]> {
  // From outside of the page: its policy lets no foreign script in, and must not be weakened for this.
  const source = await import('node:fs/promises').then(({ readFile }) => readFile(AXE, 'utf8'))
  await page.evaluate(source)
  const results = await page.evaluate(
    `axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })`,
  )
  const { violations } = results as {
    violations: { id: string; help: string; nodes: { html: string; failureSummary?: string }[] }[]
  }
  return violations.map(
    ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 160)).join(' | ')}`,
  )
}

/** Bytes of a page and everything that it loads, gzipped one by one, images left out. */
export async function measureWeight(page: Page, url: string): Promise<number> {
  let bytes = 0
  const pending: Promise<void>[] = []
  const count = (response: Awaited<ReturnType<Page['goto']>>) => {
    if (!response || /^(?:image|text\/event-stream)/.test(response.headers()['content-type'] ?? '')) return
    pending.push(
      response.body().then(
        (body) => {
          bytes += gzipSync(body).length
        },
        // A redirect has no body.
        () => {},
      ),
    )
  }
  page.on('response', count)
  await page.goto(url, { waitUntil: 'load' })
  page.off('response', count)
  await Promise.all(pending)
  return bytes
}

/** Signs the page in as the operator's person, by a link as a person does. */
export async function signInPage(page: Page, url: string, admin: Sql): Promise<void> {
  const { code } = await createLoginLink(admin)
  await page.goto(`${url}/login/${code}`)
  await page.getByRole('button', { name: /sign in/i }).click()
  await page.waitForURL(`${url}/`)
}
