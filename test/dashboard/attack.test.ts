import assert from 'node:assert/strict'
import { connect as openSocket } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { foundNamespace, listMyNamespaces } from '../../server/domain/namespaces.ts'
import { createLoginLink, renamePerson } from '../../server/domain/people.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { type Browser, browseAs, createBrowser } from '../helpers/dashboard.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, type SeededPerson, signInOperator } from '../helpers/people.ts'

const FORM = 'application/x-www-form-urlencoded'

describe('attacks on the dashboard', () => {
  let database: TestDatabase
  let app: TestApp
  let owner: SeededPerson
  let eve: SeededPerson
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { unauthenticatedPerMinute: 1_000 } })
    owner = await signInOperator(database)
    await foundNamespace(owner.scope, { name: 'acme' })
    eve = await joinAs(database, owner, 'acme', 'member', 'Eve')
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  async function names(): Promise<string[]> {
    return (await listMyNamespaces(owner.scope)).map(({ name }) => name)
  }

  describe('a form of another site', () => {
    const cases: [
      string,
      (victim: Browser) => Promise<{ fields?: Record<string, string>; headers?: Record<string, string> }>,
    ][] = [
      ['without the form token', async () => ({ fields: { csrf: '' } })],
      [
        'with a token of the right length that is wrong',
        async ({ csrf }) => ({ fields: { csrf: csrf.replace(/^./, (first) => (first === 'a' ? 'b' : 'a')) } }),
      ],
      [
        'with the token of somebody else’s session',
        async () => ({ fields: { csrf: await tokenOf(browseAs(app, eve), '/account') } }),
      ],
      [
        'with the token of a page without a session',
        async () => ({ fields: { csrf: await tokenOf(createBrowser(app), '/login') } }),
      ],
      ['with the right token from a foreign Origin', async () => ({ headers: { origin: 'https://evil.example' } })],
      ['with the right token from an opaque Origin', async () => ({ headers: { origin: 'null' } })],
      ['with the right token from a neighbour’s port', async () => ({ headers: { origin: 'http://127.0.0.1:1' } })],
      ['that the browser calls cross-site', async () => ({ headers: { 'sec-fetch-site': 'cross-site' } })],
      ['that the browser calls same-site', async () => ({ headers: { 'sec-fetch-site': 'same-site' } })],
      ['as JSON', async ({ csrf }) => ({ headers: { 'content-type': 'application/json' }, fields: { csrf } })],
      ['as plain text', async () => ({ headers: { 'content-type': 'text/plain' } })],
      ['as multipart', async () => ({ headers: { 'content-type': 'multipart/form-data; boundary=x' } })],
    ]
    for (const [name, prepare] of cases) {
      test(`${name} changes nothing`, async () => {
        const victim = browseAs(app, owner)
        await victim.get('/')
        const { fields = {}, headers = {} } = await prepare(victim)
        const answer = await victim.post('/namespaces', { name: 'stolen', ...fields }, headers)
        assert.ok([403, 415].includes(answer.status), String(answer.status))
        assert.match(answer.headers.get('content-type') ?? '', /^text\/html/)
        assert.equal(
          answer.headers.getSetCookie().some((line) => line.startsWith('__Host-patchcord=')),
          false,
        )
        assert.ok(!(await names()).includes('stolen'))
      })
    }
    test('with its own token twice is no form of ours', async () => {
      const victim = browseAs(app, owner)
      await victim.get('/')
      const body = `csrf=${victim.csrf}&csrf=${victim.csrf}&name=stolen`
      const answer = await victim.request('POST', '/namespaces', { headers: { 'content-type': FORM }, body })
      assert.equal(answer.status, 403)
      assert.ok(!(await names()).includes('stolen'))
    })
    test('cannot sign a victim in as somebody else, for want of the form’s cookie', async () => {
      const { code } = await createLoginLink(database.admin)
      const attacker = createBrowser(app)
      await attacker.get(`/login/${code}`)
      const victim = createBrowser(app)
      await victim.get('/login')
      assert.equal((await victim.post(`/login/${code}`, { csrf: attacker.csrf })).status, 403)
      assert.equal((await victim.post(`/login/${code}`, { csrf: '' })).status, 403)
      assert.equal(victim.cookies.has('__Host-patchcord'), false)
    })
    test('cannot sign a victim out', async () => {
      const victim = browseAs(app, owner)
      assert.equal((await victim.post('/logout', { csrf: 'x' })).status, 403)
      assert.equal((await victim.request('GET', '/logout')).status, 404)
      assert.equal((await victim.get('/account')).status, 200)
    })
  })

  test('every page comes with headers against frames, foreign scripts and leaks, and is kept nowhere', async () => {
    const signedIn = browseAs(app, owner)
    for (const page of [
      await signedIn.get('/'),
      await signedIn.get('/n/x/y'),
      await createBrowser(app).get('/login'),
    ]) {
      const policy = page.headers.get('content-security-policy') ?? ''
      assert.doesNotMatch(policy, /unsafe|\*|https?:|data:|blob:/)
      const directives = Object.fromEntries(policy.split('; ').map((each) => each.split(/ (.*)/)))
      for (const name of ['default-src', 'base-uri', 'frame-ancestors']) assert.equal(directives[name], "'none'", name)
      for (const name of ['script-src', 'style-src', 'img-src', 'connect-src', 'form-action'])
        assert.equal(directives[name], "'self'", name)
      assert.equal(page.headers.get('x-frame-options'), 'DENY')
      assert.equal(page.headers.get('referrer-policy'), 'same-origin')
      assert.equal(page.headers.get('cross-origin-opener-policy'), 'same-origin')
      assert.equal(page.headers.get('x-content-type-options'), 'nosniff')
      assert.match(page.headers.get('permissions-policy') ?? '', /camera=\(\)/)
      assert.equal(page.headers.get('cache-control'), 'no-store')
      assert.equal(page.headers.get('access-control-allow-origin'), null)
      assert.doesNotMatch(page.html, /\sstyle=|<style|\son\w+=|javascript:/)
      for (const [tag] of page.html.matchAll(/<script[^>]*>/g)) assert.match(tag, /src="\/assets\//)
    }
  })

  test('names and messages with markup are text wherever they are shown', async () => {
    const name = `<img src=x onerror=alert(1)>"'&`
    await renamePerson(eve.scope, { name })
    const browser = browseAs(app, eve)
    const { code } = await createLoginLink(database.admin, { person: name })
    const pages = [
      await browser.get('/'),
      await browser.get('/account'),
      await browser.get(`/login/${code}`),
      await browser.post('/namespaces', { name: '<script>alert(1)</script>' }),
    ]
    const other = createBrowser(app)
    await other.get(`/login/${code}`)
    await other.post(`/login/${code}`)
    pages.push(await other.get('/'))
    for (const page of pages) {
      assert.doesNotMatch(page.html, /<img|<script>|"'&"/)
      assert.match(page.html, /&lt;img src=x onerror=alert\(1\)&gt;&quot;&#39;&amp;/)
    }
    assert.match(pages[4]?.text ?? '', /You are signed in as <img/, 'in the message that is shown once, too')
    await renamePerson(eve.scope, { name: 'Eve' })
  })

  test('nothing that a browser sends gets into a header', async () => {
    const browser = createBrowser(app)
    await browser.get('/login')
    const next = '/x\r\nset-cookie: a=b'
    for (const answer of [
      await browser.post('/theme', { theme: 'dark\r\nset-cookie: a=b', next }),
      await browser.get(`/login?next=${encodeURIComponent(next)}`),
      await browser.get(`/login?next=${encodeURIComponent('/%0d%0aset-cookie:a=b')}`),
    ]) {
      assert.equal(
        answer.headers.getSetCookie().some((line) => line.startsWith('a=')),
        false,
      )
      assert.doesNotMatch(answer.location ?? '', /[\r\n]/)
    }
    browser.cookies.set('__Host-patchcord-flash', Buffer.from('<b>\r\nset-cookie: a=b').toString('base64url'))
    const page = await browser.get('/login')
    assert.match(page.html, /&lt;b&gt;/)
    assert.equal(
      page.headers.getSetCookie().some((line) => line.startsWith('a=')),
      false,
    )
  })

  test('after a sign-in nobody is sent to another site, whatever the cookie says', async () => {
    for (const next of ['//evil.example', 'https://evil.example', '/\\evil.example', '/login/abc', '\0']) {
      const { code } = await createLoginLink(database.admin)
      const browser = createBrowser(app)
      browser.cookies.set('__Host-patchcord-next', Buffer.from(next).toString('base64url'))
      await browser.get(`/login/${code}`)
      assert.equal((await browser.post(`/login/${code}`)).location, '/')
    }
    const signedIn = await browseAs(app, owner).get('/login?next=//evil.example')
    assert.equal(signedIn.location, '/')
  })

  test('an asset has one name, and no path leads out of its folder', async () => {
    const browser = createBrowser(app)
    const { html } = await browser.get('/login')
    const [file = ''] = /\/assets\/app-[0-9a-f]{10}\.css/.exec(html) ?? []
    const asset = await browser.get(file, { 'accept-encoding': 'identity' })
    assert.equal(asset.status, 200)
    assert.equal(asset.headers.get('cache-control'), 'public, max-age=31536000, immutable')
    assert.equal(asset.headers.get('x-content-type-options'), 'nosniff')
    assert.match(asset.headers.get('content-type') ?? '', /^text\/css/)
    assert.equal((await browser.get(file, { 'accept-encoding': 'gzip' })).headers.get('content-encoding'), 'gzip')
    for (const path of [
      '..%2fendpoint.tsx',
      '%2e%2e%2f%2e%2e%2fpackage.json',
      '....//app.css',
      'app.css',
      'app-0000000000.css',
      '%00',
      '__proto__',
      'constructor',
    ]) {
      const answer = await browser.get(`/assets/${path}`)
      assert.equal(answer.status, 404, path)
      assert.equal(answer.headers.get('cache-control'), 'no-store')
    }
    assert.match(await rawStatus(app, 'GET /assets/../../package.json HTTP/1.1'), / 40[04] /)
  })

  test('methods other than those of the forms do nothing', async () => {
    const browser = browseAs(app, owner)
    for (const method of ['PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND']) {
      for (const path of ['/namespaces', '/', '/account/name']) {
        const answer = await browser.request(method, path)
        assert.ok([404, 405, 501].includes(answer.status), `${method} ${path} ${answer.status}`)
        assert.equal(answer.headers.get('access-control-allow-origin'), null)
      }
    }
    assert.match(await rawStatus(app, 'TRACE / HTTP/1.1'), / 40[045] /)
    const head = await browser.request('HEAD', '/account')
    assert.deepEqual([head.status, head.html], [200, ''])
    assert.match(head.headers.get('content-security-policy') ?? '', /frame-ancestors/)
  })

  test('huge cookies, bodies and parameters are refused, and broken ones are nobody', async () => {
    const browser = createBrowser(app)
    assert.equal((await browser.get('/account', { cookie: `a=${'x'.repeat(100_000)}` })).status, 431)
    for (const cookie of [
      '__Host-patchcord=%',
      '__Host-patchcord=%00%ff',
      '__Host-patchcord=',
      ';;;=;',
      `__Host-patchcord=${'x'.repeat(5_000)}`,
    ]) {
      assert.equal((await browser.get('/account', { cookie })).status, 303, cookie.slice(0, 30))
    }
    const signedIn = browseAs(app, owner)
    await signedIn.get('/')
    const answer = await signedIn.post('/namespaces', { name: 'x'.repeat(100_000) })
    assert.equal(answer.status, 413)
    assert.match(answer.text, /Too large/)
    assert.equal(
      (
        await signedIn.request('POST', '/namespaces', {
          headers: { 'content-type': FORM },
          body: '__proto__[csrf]=x&constructor=y',
        })
      ).status,
      403,
    )
  })

  test('somebody else’s page is one that does not exist', async () => {
    const answers = []
    for (const path of ['/n/nobody/agents', '/wrong', '/n/nobody/x/y']) answers.push(await browseAs(app, eve).get(path))
    for (const { status, text } of answers) {
      assert.equal(status, 404)
      assert.match(text, /Not found/)
    }
    const program = await createBrowser(app).get('/wrong', { accept: '*/*' })
    assert.match(program.headers.get('content-type') ?? '', /json/, 'programs are answered as ever')
    const signedOut = await createBrowser(app).get('/account', { accept: '*/*' })
    assert.deepEqual([signedOut.status, JSON.parse(signedOut.html).error.code], [401, 'signed_out'])
    assert.deepEqual(program.headers.getSetCookie(), [])
  })

  test('under a host name that is not ours there is a page that says why', async () => {
    const socketAnswer = await rawStatus(app, 'GET /login HTTP/1.1', 'evil.example')
    assert.match(socketAnswer, /^HTTP\/1\.1 421 /)
    assert.match(socketAnswer, /PATCHCORD_PUBLIC_URL/)
    assert.match(socketAnswer, /content-security-policy/)
  })

  async function tokenOf(browser: Browser, path: string): Promise<string> {
    await browser.get(path)
    return browser.csrf
  }
})

/** What fetch would put right before it is sent. */
async function rawStatus({ url }: { url: string }, line: string, host = new URL(url).host): Promise<string> {
  const socket = openSocket(Number(new URL(url).port), '127.0.0.1')
  socket.end(`${line}\r\nhost: ${host}\r\naccept: text/html\r\nconnection: close\r\n\r\n`)
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  return text
}
