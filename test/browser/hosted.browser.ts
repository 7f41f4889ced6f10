import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { createInvite } from '../../server/domain/members.ts'
import { foundNamespace } from '../../server/domain/namespaces.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { signInOperator } from '../helpers/people.ts'
import { startSupabaseAuth, type TestSupabaseAuth, USER } from '../helpers/supabase-auth.ts'
import { listAxeViolations, openBrowser, openPage } from './helpers/browser.ts'

const CORS = { 'access-control-allow-origin': '*', 'access-control-allow-headers': '*' }

/** The stand-in of Supabase Auth, with the parts that a browser asks: an e-mail link, and OAuth with PKCE. */
async function startFront(auth: TestSupabaseAuth) {
  const seen = { mailed: '', challenge: '', verifier: '' }
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '', 'http://front')
    let body = ''
    for await (const chunk of request) body += chunk
    const send = (status: number, json: unknown) =>
      response.writeHead(status, { ...CORS, 'content-type': 'application/json' }).end(JSON.stringify(json))
    if (request.method === 'OPTIONS') send(200, {})
    else if (url.pathname === '/auth/v1/authorize') {
      seen.challenge = url.searchParams.get('code_challenge') ?? ''
      response.writeHead(302, { location: `${url.searchParams.get('redirect_to')}?code=from-github` }).end()
    } else if (url.pathname === '/auth/v1/otp') {
      seen.mailed = (JSON.parse(body) as { email: string }).email
      send(200, {})
    } else if (url.pathname === '/auth/v1/token') {
      seen.verifier = (JSON.parse(body) as { code_verifier: string }).code_verifier
      const access_token = await auth.token({ iss: `${front.url}auth/v1` })
      const user = { id: USER, aud: 'authenticated', app_metadata: {}, user_metadata: {}, created_at: '2026-01-01' }
      send(200, { access_token, token_type: 'bearer', expires_in: 3600, refresh_token: 'r', user })
    } else {
      const inner = await fetch(new URL(request.url ?? '', auth.url))
      send(inner.status, await inner.json())
    }
  }
  const server = createServer((request, response) => void answer(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const front = {
    url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`),
    seen,
    close: () => new Promise((resolve) => server.close(resolve).closeAllConnections()),
  }
  return front
}

describe('a hosted dashboard, in a browser', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  let auth: TestSupabaseAuth
  let front: Awaited<ReturnType<typeof startFront>>
  let chromium: Awaited<ReturnType<typeof openBrowser>>
  before(async () => {
    auth = await startSupabaseAuth()
    front = await startFront(auth)
    database = await createTestDatabase()
    app = await startTestApp(database, {
      config: { supabase: { url: front.url, publishableKey: 'sb_publishable_x', secretKey: null } },
    })
    chromium = await openBrowser()
  })
  after(async () => {
    await chromium?.close()
    await app?.close()
    await database?.drop()
    await front?.close()
    await auth?.close()
  })

  test('an invited person signs in through Supabase Auth, by PKCE, and is a member; nothing of it stays in the browser', async () => {
    const owner = await signInOperator(database)
    await foundNamespace(owner.scope, { name: 'acme' })
    const { code } = await createInvite(owner.scope, { namespace: 'acme', role: 'member' })
    const { page, errors } = await openPage(chromium.browser)
    await page.goto(`${app.url}/invite/${code}`)
    await page.locator('main').getByRole('button').first().click()
    await page.getByRole('button', { name: /github/i }).waitFor()
    assert.deepEqual(await listAxeViolations(page), [])

    await page.getByLabel('E-mail address').fill('ada@example.org')
    await page.getByRole('button', { name: 'Send me a link' }).click()
    await page.getByText('is on its way').waitFor()
    assert.equal(front.seen.mailed, 'ada@example.org')

    await page.reload()
    await page.getByRole('button', { name: /github/i }).click()
    await page.waitForURL(`${app.url}/`)
    await page.getByRole('link', { name: 'acme' }).waitFor()
    assert.match(front.seen.challenge, /^[\w-]{43}$/)
    assert.ok(front.seen.verifier.length >= 43)
    assert.equal(await page.evaluate('Object.keys(localStorage).length + Object.keys(sessionStorage).length'), 0)
    assert.deepEqual(errors, [])
  })
})
