import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { toLocalPath } from '../../server/dashboard/paths.ts'
import { createLoginLink } from '../../server/domain/people.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { browseAs, createBrowser, signIn } from '../helpers/dashboard.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { signInOperator } from '../helpers/people.ts'

const SESSION = '__Host-patchcord'

describe('the session of a person', () => {
  let database: TestDatabase
  let app: TestApp
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  test('starts with a link that says who you will be, and whose button signs in', async () => {
    const { code } = await createLoginLink(database.admin)
    const browser = createBrowser(app)
    const page = await browser.get(`/login/${code}`)
    assert.equal(page.status, 200)
    assert.match(page.text, /You will be signed in as owner on this device\./)
    const answer = await browser.post(`/login/${code}`)
    assert.deepEqual([answer.status, answer.location], [303, '/'])
    const home = await browser.get('/')
    assert.match(home.text, /You are signed in as owner\./)
    assert.match(home.text, /Name your first namespace/)
    assert.doesNotMatch((await browser.get('/')).text, /You are signed in as/, 'a message is shown once')
  })

  test('lives in a cookie of this host alone, which no script reads', async () => {
    const { code } = await createLoginLink(database.admin)
    const browser = createBrowser(app)
    await browser.get(`/login/${code}`)
    const answer = await browser.post(`/login/${code}`)
    const line = answer.headers.getSetCookie().find((each) => each.startsWith(`${SESSION}=`)) ?? ''
    const attributes = line.split('; ').slice(1).sort()
    assert.deepEqual(attributes, ['HttpOnly', 'Max-Age=2592000', 'Path=/', 'SameSite=Lax', 'Secure'])
    assert.ok((browser.cookies.get(SESSION) ?? '').length >= 43)
  })

  test('founds a namespace, and says what is wrong with a name beside its field', async () => {
    const browser = await signIn(app, database)
    await browser.get('/')
    const wrong = await browser.post('/namespaces', { name: '<b>' })
    assert.equal(wrong.status, 400)
    assert.match(wrong.html, /id="name-error"/)
    assert.match(wrong.html, /value="&lt;b&gt;"/)
    const answer = await browser.post('/namespaces', { name: 'acme' })
    assert.deepEqual([answer.status, answer.location], [303, '/n/acme/agents'])
    const home = await browser.get('/')
    assert.match(home.text, /acme/)
    const taken = await browser.post('/namespaces', { name: 'acme' })
    assert.equal(taken.status, 409)
    assert.match(taken.text, /acme-?2 is free/)
  })

  test('is a new one at each sign-in, and the one of before ends with it', async () => {
    const browser = await signIn(app, database)
    const before = browser.cookies.get(SESSION)
    const { code } = await createLoginLink(database.admin)
    const page = await browser.get(`/login/${code}`)
    assert.match(page.text, /You are signed in as owner now; that session ends/)
    await browser.post(`/login/${code}`)
    assert.notEqual(browser.cookies.get(SESSION), before)
    const thief = browseAs(app, { session: before ?? '' })
    assert.equal((await thief.get('/account')).location, '/login?next=%2Faccount')
  })

  test('cannot be planted: a secret that somebody else chose is never taken over', async () => {
    const planted = 'x'.repeat(43)
    const browser = browseAs(app, { session: planted })
    const { code } = await createLoginLink(database.admin)
    await browser.get(`/login/${code}`)
    await browser.post(`/login/${code}`)
    assert.notEqual(browser.cookies.get(SESSION), planted)
    assert.equal((await browseAs(app, { session: planted }).get('/account')).status, 303)
  })

  test('ends with Sign out, here and in the database', async () => {
    const browser = await signIn(app, database)
    const session = browser.cookies.get(SESSION) ?? ''
    await browser.get('/account')
    const answer = await browser.post('/logout')
    assert.deepEqual([answer.status, answer.location], [303, '/login'])
    assert.equal(browser.cookies.has(SESSION), false)
    assert.match((await browser.get('/login')).text, /You are signed out\./)
    assert.equal((await browseAs(app, { session }).get('/account')).status, 303)
  })

  test('of another browser is ended on the account page, and only one’s own', async () => {
    const [here, there] = [await signIn(app, database), await signIn(app, database)]
    const page = await here.get('/account')
    const ids = Array.from(page.html.matchAll(/\/account\/sessions\/([\w-]+)\/end/g), ([, id]) => id)
    assert.ok(ids.length >= 1)
    for (const id of ids) assert.equal((await here.post(`/account/sessions/${id}/end`)).status, 303)
    assert.equal((await there.get('/account')).status, 303)
    assert.equal((await here.get('/account')).status, 200)
    assert.equal((await here.post('/account/sessions/1/end')).status, 404)
  })

  test('has a name that its person changes', async () => {
    const browser = await signIn(app, database)
    await browser.get('/account')
    assert.equal((await browser.post('/account/name', { name: '  ' })).status, 400)
    const long = await browser.post('/account/name', { name: 'a'.repeat(61) })
    assert.match(long.html, /name="name"[^>]*value="a{61}"[^>]*autofocus/)
    assert.match(long.html, /class="field-error"[^>]*>[^<]*1 to 60/)
    assert.doesNotMatch(long.html, /maxlength/)
    const founded = await browser.post('/namespaces', { name: 'a'.repeat(41) })
    assert.match(founded.html, /name="name"[^>]*value="a{41}"[^>]*autofocus/)
    assert.match(founded.html, /class="field-error"[^>]*>[^<]*1 to 40/)
    assert.doesNotMatch(founded.html, /maxlength|pattern=/)
    assert.equal((await browser.post('/account/name', { name: 'Ada L.' })).location, '/account')
    assert.match((await browser.get('/account')).html, /value="Ada L\."/)
    await browser.post('/account/name', { name: 'owner' })
  })

  test('makes a link for another device that signs in as the same person', async () => {
    const browser = await signIn(app, database)
    await browser.get('/account')
    const page = await browser.post('/account/login-link')
    const path = new RegExp(`${app.url}(/login/[\\w-]{43})`).exec(page.text)?.[1] ?? ''
    const other = createBrowser(app)
    assert.match((await other.get(path)).text, /You will be signed in as owner on this device\./)
    assert.equal((await other.post(path)).status, 303)
  })

  test('that is missing leads to the sign-in, and from there to the page that was asked for', async () => {
    const browser = createBrowser(app)
    const answer = await browser.get('/account?tab=1')
    assert.deepEqual([answer.status, answer.location], [303, '/login?next=%2Faccount%3Ftab%3D1'])
    await browser.get(answer.location ?? '')
    const { code } = await createLoginLink(database.admin)
    await browser.get(`/login/${code}`)
    assert.equal((await browser.post(`/login/${code}`)).location, '/account?tab=1')
  })

  test('that has ended meanwhile says so, and that nothing was changed', async () => {
    const person = await signInOperator(database)
    const browser = browseAs(app, person)
    await browser.get('/account')
    await database.admin`update patchcord.sessions set ended_at = now() where id = ${person.sessionId}`
    const answer = await browser.post('/account/name', { name: 'Mallory' })
    assert.deepEqual([answer.status, answer.location], [303, '/login'])
    assert.match((await browser.get('/login')).text, /nothing was changed/)
    assert.equal((await browser.get('/account?fragment=x')).status, 401, 'live.js is told by the status')
  })

  test('keeps the theme that was chosen, without scripts', async () => {
    const browser = createBrowser(app)
    assert.match((await browser.get('/login')).html, /data-theme="auto"/)
    const answer = await browser.post('/theme', { theme: 'dark', next: '/account' })
    assert.equal(answer.location, '/account')
    assert.match((await browser.get('/login')).html, /data-theme="dark"/)
    await browser.post('/theme', { theme: '"><script>', next: '//evil.example' })
    assert.match((await browser.get('/login')).html, /data-theme="auto"/)
  })

  test('leads on from the answer to a form to the page that the form stood on', async () => {
    const browser = await signIn(app, database)
    await browser.get('/account')
    const cases: [referer: string, path: string][] = [
      [`${app.url}/account?tab=2`, '/account?tab=2'],
      ['https://evil.example//evil.example/x', '/'],
      ['nonsense', '/'],
    ]
    for (const [referer, path] of cases) {
      const answer = await browser.post('/account/name', { name: '' }, { referer })
      assert.equal(answer.status, 400)
      assert.ok(answer.html.includes(`name="next" value="${path}"`), referer)
    }
  })

  test('that cannot be kept by the browser is explained, with what to do', async () => {
    const { code } = await createLoginLink(database.admin)
    const browser = createBrowser(app)
    await browser.get(`/login/${code}`)
    browser.cookies.clear()
    const answer = await browser.post(`/login/${code}`)
    assert.equal(answer.status, 403)
    assert.match(answer.text, /Your browser kept no cookie/)
    assert.match(answer.text, /PATCHCORD_PUBLIC_URL/)
    await browser.get(`/login/${code}`)
    assert.equal((await browser.post(`/login/${code}`)).status, 303, 'and the link still works')
  })
})

describe('the path to go on to after a sign-in', () => {
  for (const path of ['/', '/n/acme/agents', '/n/acme/messages?q=a%20b&from=x', '/account#x'.slice(0, 8)]) {
    test(`may be ${path}`, () => assert.equal(toLocalPath(path), path))
  }
  const hostile = [
    ...[
      'https://evil.example',
      '//evil.example',
      '/\\evil.example',
      '\\\\evil.example',
      '/\t/evil.example',
      '/%0d%0aSet-Cookie: a',
    ],
    ...[
      'javascript:alert(1)',
      '',
      'n/acme',
      '/..//evil.example',
      '/./\\evil',
      '/login/abc',
      '/logout',
      '/assets/x',
      `/${'a'.repeat(2_000)}`,
    ],
    ...[undefined, null, 7, ['/a'], '/é', '/a\nb', '/a b'],
  ]
  for (const path of hostile) {
    test(`cannot be ${JSON.stringify(path)?.slice(0, 40)}`, () => assert.equal(toLocalPath(path), null))
  }
  test('is without the name of a part', () => {
    assert.equal(toLocalPath('/n/acme/agents?fragment=list&q=1'), '/n/acme/agents?q=1')
  })
})

test('while the database is away, a page says so and asks to reload; without a session the sign-in still shows', async () => {
  const database = await createTestDatabase()
  const app = await startTestApp(database)
  const browser = await signIn(app, database)
  await database.drop()
  const page = await browser.get('/account')
  const login = await createBrowser(app).get('/login')
  await app.close()
  assert.equal(page.status, 503)
  assert.match(page.text, /Not available just now/)
  assert.ok(Number(page.headers.get('retry-after')) >= 1)
  assert.match(page.headers.get('content-security-policy') ?? '', /default-src 'none'/)
  assert.equal(login.status, 200)
})
