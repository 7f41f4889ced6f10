import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { addAgent } from '../../server/domain/agents.ts'
import { createInvite } from '../../server/domain/members.ts'
import { createToken, listTokensOf } from '../../server/domain/tokens.ts'
import { createBrowser, type PageAnswer } from '../helpers/dashboard.ts'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'

const FORM = 'application/x-www-form-urlencoded'
const NOWHERE = '01010101-0101-7101-8101-010101010101'

/** The routes are asked of the server itself, so that one that is added is attacked like all others. */
describe('every route of the dashboard', () => {
  let stage: Stage
  let routes: { method: string; path: string }[]
  let tokenId: string
  let inviteId: string
  before(async () => {
    stage = await startStage({ limits: { unauthenticatedPerMinute: 10_000 }, logLevel: 'error' })
    routes = listRoutes(stage.app.app.printRoutes({ commonPrefix: false }))
    const { scope } = stage.owner
    await addAgent(scope, { namespace: 'acme', name: 'bob' })
    const token = { namespace: 'acme', agent: 'bob', label: 'lap', expiresInSeconds: undefined, id: 'form' }
    tokenId = (await createToken(scope, token)).id
    inviteId = (await createInvite(scope, { namespace: 'acme', role: 'owner' })).id
  })
  after(() => stage?.close())

  test('is found by these tests', () => {
    const count = (method: string) => routes.filter((route) => route.method === method).length
    assert.ok(count('POST') >= 21, `${count('POST')} forms`)
    assert.ok(count('GET') >= 20, `${count('GET')} pages`)
  })

  test('changes nothing without the form’s token, from another site, or for nobody', async () => {
    const owner = stage.browse(stage.owner)
    await owner.get('/account')
    const right = new URLSearchParams({ ...FIELDS, csrf: owner.csrf }).toString()
    const wrong = new URLSearchParams(FIELDS).toString()
    const earlier = await countEverything()
    for (const { path } of routes.filter(({ method }) => method === 'POST')) {
      const url = fill(path, 'acme', true)
      const send = (body: string, headers: Record<string, string>) =>
        owner.request('POST', url, { headers: { 'content-type': FORM, ...headers }, body })
      const here = { origin: stage.app.url }
      assert.equal((await send(wrong, here)).status, 403, `${url} without its token`)
      assert.equal((await send(right, { origin: 'https://evil.example' })).status, 403, `${url} from another site`)
      assert.equal((await send(right, { ...here, 'sec-fetch-site': 'cross-site' })).status, 403, `${url} cross-site`)
      const json = { ...here, 'content-type': 'application/json' }
      assert.equal((await send(JSON.stringify({ ...FIELDS, csrf: owner.csrf }), json)).status, 415, `${url} as JSON`)
      const nobody = createBrowser(stage.app)
      await nobody.get('/login')
      const answer = await nobody.post(url, { ...FIELDS, csrf: '' })
      assert.ok(answer.status === 403 || answer.location === '/login', `${url} for nobody: ${answer.status}`)
    }
    assert.deepEqual(await countEverything(), earlier)
  })

  test('leads to the page with the form who asks for the address of a form as a page', async () => {
    const owner = stage.browse(stage.owner)
    // Of these each is looked at in another way: the pages that sign in and out, and the theme, which comes back by itself.
    const forms = routes.filter(({ method, path }) => method === 'POST' && !/^\/(?:log|theme|invite)/.test(path))
    assert.ok(forms.length >= 15, `${forms.length} forms`)
    for (const { path } of forms) {
      const url = fill(path, 'acme', true)
      const answer = await owner.get(url)
      const page = answer.status === 303 ? await owner.get(answer.location ?? '') : answer
      assert.equal(page.status, 200, `${url} leads to ${answer.location}`)
      if (answer.status === 303) assert.ok(answer.location === '/' || url.startsWith(`${answer.location}/`), url)
    }
  })

  test('changes nothing when it is only looked at', async () => {
    const earlier = await countEverything()
    for (const method of ['GET', 'HEAD', 'OPTIONS', 'PUT', 'PATCH', 'DELETE']) {
      for (const { path } of routes.filter((route) => route.method === 'POST')) {
        const headers = { 'x-http-method-override': 'POST', 'x-method-override': 'POST' }
        const url = `${fill(path, 'acme', true)}?_method=POST`
        await stage.browse(stage.owner).request(method, url, { headers })
      }
    }
    assert.deepEqual(await countEverything(), earlier)
  })

  test('of a namespace of others answers as if there were none', async () => {
    const stranger = stage.browse(stage.stranger)
    await stranger.get('/account')
    for (const { method, path } of routes.filter((route) => route.path.startsWith('/n/:namespace/'))) {
      const ask = (namespace: string, isReal: boolean) =>
        method === 'GET'
          ? stranger.get(fill(path, namespace, isReal))
          : stranger.post(fill(path, namespace, isReal), FIELDS)
      const [real, none] = [await ask('acme', true), await ask('acmf', false)]
      assert.equal(real.status, 404, `${method} ${path}`)
      assert.deepEqual(comparable(real), comparable(none), `${method} ${path}`)
    }
  })

  test('of a thing of others answers, in one’s own namespace, as if there were no such thing', async () => {
    const stranger = stage.browse(stage.stranger)
    await stranger.get('/account')
    for (const { method, path } of routes.filter((route) => /^\/n\/:namespace\/.*:/.test(route.path))) {
      const ask = (isReal: boolean) =>
        method === 'GET'
          ? stranger.get(fill(path, 'elsewhere', isReal))
          : stranger.post(fill(path, 'elsewhere', isReal), FIELDS)
      assert.deepEqual(comparable(await ask(true)), comparable(await ask(false)), `${method} ${path}`)
    }
  })

  test('takes no text with a NUL, wherever it stands, and no day that is none', async () => {
    const owner = stage.browse(stage.owner)
    await owner.get('/account')
    for (const { method, path } of routes.filter((route) => route.path.includes(':'))) {
      const url = path.replaceAll(/:\w+/g, 'a%00b')
      const answer = method === 'GET' ? await owner.get(url) : await owner.post(url, FIELDS)
      assert.ok(answer.status < 500, `${method} ${url} ${answer.status}`)
    }
    for (const { path } of routes.filter(({ method }) => method === 'POST')) {
      const fields = Object.fromEntries(Object.keys(FIELDS).map((name) => [name, 'a\0b']))
      const answer = await owner.post(fill(path, 'acme', false), fields)
      assert.ok(answer.status >= 400 && answer.status < 500, `${path} ${answer.status}`)
    }
    const places = [
      '2026-02-30T00:00:00Z',
      '0000-01-01T00:00:00Z',
      '2026-01-01T00:00:00+15:00',
      '2026-01-01T1:2:3.4.5Z',
    ]
    const values = ['a%00b', ...places.map((at) => encodeURIComponent(`${at}_${NOWHERE}`))]
    for (const value of values) {
      for (const { path } of routes.filter(({ method, path }) => method === 'GET' && /namespace\/\w+$/.test(path))) {
        if (path.endsWith('/events')) continue
        const query = ['text', 'q', 'after', 'before', 'agent', 'state', 'fragment'].map((name) => `${name}=${value}`)
        for (const each of query) {
          const { status } = await owner.get(`${fill(path, 'acme', true)}?${each}`)
          assert.ok(status < 500, `${path} ${each} ${status}`)
        }
      }
    }
    assert.equal((await owner.get('/account')).status, 200, 'the session is there to the end')
    assert.deepEqual(stage.app.logs, [], 'nothing of it is a fault of the server')
  })

  /** With what is there, or with what is not. */
  function fill(path: string, namespace: string, isReal: boolean): string {
    const id = /tokens/.test(path) ? tokenId : /invites/.test(path) ? inviteId : stage.owner.sessionId
    const values: Record<string, string> = isReal
      ? { namespace, agent: 'bob', person: stage.member.personId, id }
      : { namespace, agent: 'bog', person: NOWHERE, id: NOWHERE }
    return path.replaceAll(/:(\w+)/g, (_, name: string) => values[name] ?? 'nothing').replace('*', 'nothing')
  }

  async function countEverything(): Promise<unknown> {
    const [row] = await stage.database.admin`
      select (select count(*) from patchcord.security_log)::integer as events,
        (select count(*) from patchcord.sessions where ended_at is null)::integer as sessions,
        (select count(*) from patchcord.login_links)::integer as links,
        (select array_agg(name order by name) from patchcord.people) as people`
    const { tokens } = await listTokensOf(stage.owner.scope, { namespace: 'acme' })
    return { ...row, tokens: tokens.length }
  }
})

const FIELDS = {
  name: 'taken-over',
  agent: 'bob',
  label: 'lap',
  life: '30',
  id: 'another-form',
  overlap: '0',
  role: 'admin',
  seen: 'member',
  paused: 'yes',
  theme: 'dark',
  access_token: 'x',
}

/** What may differ is what was asked for, and the secret of the form. */
function comparable({ status, html, location, headers }: PageAnswer) {
  const text = html
    .replaceAll(/name="csrf" value="[^"]*"/g, '')
    .replaceAll(/acme|acmf/g, 'ns')
    .replaceAll(/bo[bg]|[0-9a-f-]{36}/g, 'thing')
  const names = [...headers.keys()].filter((name) => !['date', 'content-length', 'set-cookie'].includes(name))
  return { status, location, names, text: text.replaceAll(/name="next" value="[^"]*"/g, '') }
}

/** Of what Fastify prints: those that are no API's. */
function listRoutes(printed: string): { method: string; path: string }[] {
  const stack: string[] = []
  return printed.split('\n').flatMap((line) => {
    const [, indent = '', part = '', methods = ''] = /^([\s│]*)[├└]── (\S+)(?: \(([A-Z, ]+)\))?/.exec(line) ?? []
    if (part === '') return []
    stack.length = indent.length / 4
    stack.push(part)
    const path = stack.join('').replaceAll('//', '/')
    if (/^\/(?:api|mcp|health|openapi|assets|favicon)/.test(path)) return []
    return methods
      .split(', ')
      .filter((method) => method === 'GET' || method === 'POST')
      .map((method) => ({ method, path }))
  })
}
