import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createInvite } from '../../server/domain/members.ts'
import { foundNamespace } from '../../server/domain/namespaces.ts'
import { createLoginLink } from '../../server/domain/people.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { browseAs, createBrowser } from '../helpers/dashboard.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededPerson, signInOperator } from '../helpers/people.ts'

const PARALLEL = 20
const UNKNOWN = 'u'.repeat(43)

describe('signing in', () => {
  let database: TestDatabase
  let app: TestApp
  let owner: SeededPerson
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { unauthenticatedPerMinute: 1_000 } })
    owner = await signInOperator(database)
    await foundNamespace(owner.scope, { name: 'acme' })
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  const expire = (table: 'login_links' | 'invites') =>
    database.admin`update patchcord.${database.admin(table)} set created_at = now() - interval '9 days', expires_at = now() - interval '1 day'`

  /** The answer without what differs in every page. */
  const comparable = (html: string, code: string) =>
    html.replaceAll(code, 'CODE').replaceAll(/name="(?:csrf|next)" value="[^"]+"/g, '')

  test('looking at a link uses nothing up, however it is looked at', async () => {
    const { code } = await createLoginLink(database.admin)
    const browser = createBrowser(app)
    for (const method of ['GET', 'HEAD', 'GET', 'OPTIONS', 'HEAD']) await browser.request(method, `/login/${code}`)
    assert.match((await browser.get(`/login/${code}`)).text, /You will be signed in as owner on this device\./)
    assert.equal((await browser.post(`/login/${code}`)).status, 303)
  })

  test('a link signs in once, whoever and however many send it at once', async () => {
    const { code } = await createLoginLink(database.admin)
    const browsers = Array.from({ length: PARALLEL }, () => createBrowser(app))
    await Promise.all(browsers.map((browser) => browser.get(`/login/${code}`)))
    const answers = await Promise.all(browsers.map((browser) => browser.post(`/login/${code}`)))
    assert.equal(answers.filter(({ status }) => status === 303).length, 1)
    assert.equal(answers.filter(({ status }) => status === 404).length, PARALLEL - 1)
    assert.equal(browsers.filter(({ cookies }) => cookies.has('__Host-patchcord')).length, 1)
  })

  test('links that are unknown, used, expired or cut off have one answer, which says what to do', async () => {
    const browser = createBrowser(app)
    const used = (await createLoginLink(database.admin)).code
    await browser.get(`/login/${used}`)
    await createBrowserThatUses(used)
    const expired = (await createLoginLink(database.admin)).code
    await expire('login_links')
    const answers = []
    for (const code of [used, expired, UNKNOWN, used.slice(0, 20)]) {
      const looked = await browser.get(`/login/${code}`)
      const sent = await browser.post(`/login/${code}`)
      answers.push([looked.status, comparable(looked.html, code)], [sent.status, comparable(sent.html, code)])
      assert.match(looked.text, /patchcord login-link/)
    }
    assert.equal(new Set(answers.map(([status]) => status)).size, 1)
    assert.equal(answers[0]?.[0], 404)
    assert.equal(new Set(answers.map(([, html]) => html)).size, 1)
  })

  async function createBrowserThatUses(code: string) {
    const browser = createBrowser(app)
    await browser.get(`/login/${code}`)
    assert.equal((await browser.post(`/login/${code}`)).status, 303)
    return browser
  }

  test('an invite makes a person and a member, once of many at a time', async () => {
    const { code } = await createInvite(owner.scope, { namespace: 'acme', role: 'member' })
    const browsers = Array.from({ length: PARALLEL }, () => createBrowser(app))
    const pages = await Promise.all(browsers.map((browser) => browser.get(`/invite/${code}`)))
    for (const page of pages) assert.match(page.text, /owner invites you to acme/)
    const answers = await Promise.all(
      browsers.map((browser, index) => browser.post(`/invite/${code}`, { name: `Bo ${index}` })),
    )
    assert.equal(answers.filter(({ location }) => location === '/n/acme/agents').length, 1)
    assert.equal(answers.filter(({ status }) => status === 404).length, PARALLEL - 1)
    const [count] =
      await database.admin`select count(*)::integer as people from patchcord.people where name like 'Bo %'`
    assert.equal(count?.people, 1)
  })

  test('an invite asks for a name again when it is none, and is not used up', async () => {
    const { code } = await createInvite(owner.scope, { namespace: 'acme', role: 'admin' })
    const browser = createBrowser(app)
    await browser.get(`/invite/${code}`)
    const wrong = await browser.post(`/invite/${code}`, { name: ' \u202E ' })
    assert.equal(wrong.status, 400)
    assert.match(wrong.html, /name="name"[^>]*aria-invalid="true"[^>]*>.*class="field-error"/)
    assert.equal((await browser.post(`/invite/${code}`, { name: 'Cy' })).status, 303)
    assert.match((await browser.get('/')).text, /Your role: admin/)
  })

  test('a name that is too long is refused beside its field, whole, with the limit', async () => {
    const { code } = await createInvite(owner.scope, { namespace: 'acme', role: 'member' })
    const browser = createBrowser(app)
    assert.doesNotMatch((await browser.get(`/invite/${code}`)).html, /maxlength/)
    const name = 'a'.repeat(61)
    const answer = await browser.post(`/invite/${code}`, { name })
    assert.equal(answer.status, 400)
    assert.match(answer.html, new RegExp(`name="name"[^>]*value="${name}"[^>]*autofocus`))
    assert.match(answer.html, /class="field-error"[^>]*>[^<]*1 to 60/)
    assert.equal(answer.text.match(/1 to 60/g)?.length, 1, 'said once')
  })

  test('whoever is signed in joins as who they are; a member uses nothing up', async () => {
    const { code } = await createInvite(owner.scope, { namespace: 'acme', role: 'member' })
    const browser = browseAs(app, owner)
    assert.match((await browser.get(`/invite/${code}`)).text, /Join as owner/)
    const again = await browser.post(`/invite/${code}`)
    assert.equal(again.status, 409)
    assert.match(again.text, /member of acme already/)
    const other = createBrowser(app)
    await other.get(`/invite/${code}`)
    assert.equal((await other.post(`/invite/${code}`, { name: 'Di' })).status, 303)
  })

  test('invites that are unknown, used, expired or revoked have one answer', async () => {
    const [used, revoked, expired] = await Promise.all(
      ['member', 'member', 'member'].map((role) =>
        createInvite(owner.scope, { namespace: 'acme', role: role as 'member' }),
      ),
    )
    const browser = createBrowser(app)
    await browser.get(`/invite/${used?.code}`)
    await browser.post(`/invite/${used?.code}`, { name: 'Ed' })
    await database.admin`update patchcord.invites set revoked_at = now() where id = ${revoked?.id ?? ''}`
    const stranger = createBrowser(app)
    await stranger.get('/login')
    await expire('invites')
    const answers = []
    for (const code of [used?.code ?? '', revoked?.code ?? '', expired?.code ?? '', UNKNOWN]) {
      const looked = await stranger.get(`/invite/${code}`)
      const sent = await stranger.post(`/invite/${code}`, { name: 'Fay' })
      answers.push(`${looked.status} ${comparable(looked.html, code)}`, `${sent.status} ${comparable(sent.html, code)}`)
    }
    assert.equal(new Set(answers).size, 1)
    assert.match(answers[0] ?? '', /^404/)
  })
})

test('whoever tries links that do not work waits a minute, and nobody else does', async () => {
  const database = await createTestDatabase()
  const app = await startTestApp(database, { limits: { unauthenticatedPerMinute: 3 } })
  const person = await signInOperator(database)
  const { code } = await createLoginLink(database.admin)
  const browser = createBrowser(app)
  const statuses = []
  for (const path of ['/login/a', '/invite/b', `/login/${UNKNOWN}`, '/login/c', `/login/${code}`]) {
    statuses.push((await browser.get(path)).status)
  }
  const refused = await browser.get('/invite/b')
  const signedIn = await browseAs(app, person).get('/account')
  await app.close()
  await database.drop()
  assert.deepEqual(
    statuses,
    [404, 404, 404, 429, 200],
    'behind a proxy they all have one address: a link that works goes on',
  )
  assert.ok(Number(refused.headers.get('retry-after')) >= 1)
  assert.match(refused.text, /Too many tries.*Wait \d+ s/)
  assert.equal(signedIn.status, 200)
})
