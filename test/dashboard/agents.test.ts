import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { addAgent, listAgentsOf } from '../../server/domain/agents.ts'
import { setPaused } from '../../server/domain/namespaces.ts'
import { renewLease } from '../../server/domain/presence.ts'
import { createToken, hashToken } from '../../server/domain/tokens.ts'
import { call } from '../helpers/app.ts'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'
import { listForms, submit } from '../helpers/forms.ts'

describe('the pages of agents', () => {
  let stage: Stage
  before(async () => {
    stage = await startStage()
  })
  after(() => stage?.close())

  async function names(): Promise<string[]> {
    return (await listAgentsOf(stage.owner.scope, { namespace: 'acme' })).agents.map(({ agent }) => agent)
  }

  test('an empty namespace says what an agent is, and lets an admin name the first; a member is told whom to ask', async () => {
    const page = await stage.browse(stage.admin).get('/n/acme/agents')
    assert.match(page.text, /Name your first agent/)
    assert.ok(listForms(page.html).some(({ action }) => action === '/n/acme/agents'))
    const theirs = await stage.browse(stage.member).get('/n/acme/agents')
    assert.match(theirs.text, /No agent yet.*An owner or an admin adds the first one/)
    assert.ok(!listForms(theirs.html).some(({ action }) => action.startsWith('/n/')))
  })

  test('an admin adds an agent, whose page says that it has no token yet', async () => {
    const browser = stage.browse(stage.admin)
    const answer = await submit(browser, await browser.get('/n/acme/agents'), '/n/acme/agents', { name: 'backend' })
    assert.deepEqual([answer.status, answer.location], [303, '/n/acme/agents/backend'])
    const page = await browser.follow(answer)
    assert.match(page.text, /backend is added/)
    assert.match(page.text, /offline · never connected/)
    assert.match(page.text, /backend has no token yet/)
    assert.match(page.text, /backend@acme/)
  })

  test('a taken name is refused beside the field with a free one, and what was typed stays', async () => {
    const browser = stage.browse(stage.admin)
    const answer = await submit(browser, await browser.get('/n/acme/agents'), '/n/acme/agents', { name: 'backend' })
    assert.equal(answer.status, 409)
    assert.match(answer.html, /name="name"[^>]*value="backend"[^>]*aria-invalid="true"/)
    assert.match(answer.text, /Agent backend@acme exists already\..*backend-2/)
    assert.match(answer.html, /<details class="disclosure" open/)
    assert.deepEqual(await names(), ['backend'])
  })

  test('a name is checked by the server alone, which says what is wrong, keeps it whole, and has the field in focus', async () => {
    const browser = stage.browse(stage.admin)
    const page = await browser.get('/n/acme/agents')
    assert.doesNotMatch(page.html, /<input[^>]* name="name"[^>]*(?:pattern|maxlength|autofocus)=/)
    const name = 'b'.repeat(41)
    for (const [path, form] of [
      ['/n/acme/agents', '/n/acme/agents'],
      ['/n/acme/agents/backend', /rename$/],
    ] as const) {
      const answer = await submit(browser, await browser.get(path), form, { name })
      assert.equal(answer.status, 400)
      assert.match(answer.html, new RegExp(`name="name"[^>]*value="${name}"[^>]*aria-invalid="true"[^>]*autofocus`))
      assert.match(answer.html, /class="field-error"[^>]*>[^<]*Names are 1 to 40 characters/)
      assert.doesNotMatch(answer.html, /pattern=|maxlength=/)
    }
  })

  test('the live part of a page that answers a form has the address of the page', async () => {
    const browser = stage.browse(stage.admin)
    await browser.get('/n/acme/agents')
    const headers = { referer: `${stage.app.url}/n/acme/agents/backend/rename` }
    const { html } = await browser.post('/n/acme/agents/backend/rename', { name: '' }, headers)
    assert.match(html, /data-live="\/n\/acme\/agents\/backend\?fragment=state"/)
    const list = await browser.post('/n/acme/agents', { name: '' })
    assert.match(list.html, /data-live="\/n\/acme\/agents\?fragment=list"/)
  })

  test('what is no name is refused, and shown as text', async () => {
    const browser = stage.browse(stage.admin)
    const name = `<script>alert("1")</script>&'`
    const answer = await submit(browser, await browser.get('/n/acme/agents'), '/n/acme/agents', { name })
    assert.equal(answer.status, 400)
    assert.ok(!answer.html.includes('<script>alert'))
    assert.ok(answer.html.includes('value="&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"'))
    assert.match(answer.text, /is not a name for an agent/)
  })

  test('an agent is waited for, then its state is told with its evidence', async () => {
    const { token } = await createToken(stage.admin.scope, { namespace: 'acme', agent: 'backend', label: 'lap-3' })
    const browser = stage.browse(stage.member)
    const waiting = await browser.get('/n/acme/agents/backend')
    assert.match(waiting.text, /Waiting for backend to say hello/)
    assert.match(waiting.text, /claude plugin install.*connect --server \S+ --allow.*allow the server “patchcord”/)
    assert.ok(waiting.text.includes(`patchcord connect --server ${stage.app.url}`))
    const fragment = '/n/acme/agents/backend?fragment=hello'
    assert.match(waiting.html, /data-live="\/n\/acme\/agents\/backend\?fragment=state"/)
    assert.match(waiting.html, /data-live="\/n\/acme\/agents\/backend\?fragment=hello"/)
    assert.match((await browser.get(fragment)).text, /^Waiting for backend to say hello/)
    await call(stage.app, 'GET', '/api/whoami', { token })
    assert.match((await browser.get(fragment)).text, /^backend has said hello\. It is online/)
    assert.match((await browser.get(fragment.replace('hello', 'state'))).text, /^online · no listener · last call/)
    const { api: sql } = stage.database
    const { limits } = stage.app.deps.config
    const scope = { sql, tokenHash: hashToken(token), limits, bus: stage.app.deps.bus }
    await renewLease(scope, { session: 's', client: 'claude-code', machine: 'lap-3', announced: [] })
    const list = await browser.get('/n/acme/agents')
    assert.match(list.text, /wakeable · lease renewed just now.* · Claude Code on lap-3/)
    assert.match((await browser.get('/n/acme/agents?fragment=list')).text, /^Agents of acme.*wakeable/)
  })

  test('while the namespace is paused no agent reads wakeable, and an open page learns of it from any fragment', async () => {
    const browser = stage.browse(stage.member)
    const path = '/n/acme/agents?fragment=list'
    const running = await browser.get(path)
    assert.equal(running.headers.get('x-patchcord-paused'), 'no')
    const open = await browser.get('/n/acme/agents')
    assert.match(open.html, /<div class="notice warn" role="status" data-paused="?(true)?"? hidden/)
    await setPaused(stage.admin.scope, { namespace: 'acme', paused: true })
    const paused =
      /paused · its listener runs · lease renewed .* ago|paused · its listener runs · lease renewed just now/
    const told =
      /^Paused (just now|\d+ s ago): nothing is sent, and nobody is woken\. An owner or an admin can resume it in Settings\.$/
    for (const of of [
      path,
      '/n/acme/agents',
      '/n/acme/agents/backend',
      '/n/acme/agents/backend?fragment=state',
      '/n/acme/agents/backend?fragment=hello',
    ]) {
      const { html, text, headers } = await browser.get(of)
      assert.match(text, paused, of)
      assert.match(html, /class="state warn">paused/)
      assert.doesNotMatch(text, /wakeable/, of)
      if (of.includes('fragment')) assert.match(headers.get('x-patchcord-paused') ?? '', told)
    }
    const etag = running.headers.get('etag') ?? ''
    await setPaused(stage.admin.scope, { namespace: 'acme', paused: false })
    const again = await browser.get(path, { 'if-none-match': etag })
    assert.equal(again.headers.get('x-patchcord-paused'), 'no', `${again.status}`)
  })

  test('the part of a page that has not changed is not sent again', async () => {
    const browser = stage.browse(stage.member)
    await addAgent(stage.admin.scope, { namespace: 'acme', name: 'quiet' })
    const path = '/n/acme/agents?q=quiet&fragment=list'
    const etag = (await browser.get(path)).headers.get('etag') ?? ''
    assert.equal((await browser.get(path, { 'if-none-match': etag })).status, 304)
  })

  test('an agent is renamed, and a taken name is refused with a free one', async () => {
    const browser = stage.browse(stage.admin)
    const page = await browser.get('/n/acme/agents/quiet')
    assert.match(page.text, /listeners connect again by themselves/)
    const refused = await submit(browser, page, /rename$/, { name: 'backend' })
    assert.equal(refused.status, 409)
    assert.match(refused.text, /backend-2/)
    assert.match(refused.html, /name="name"[^>]*value="backend"/)
    const done = await submit(browser, page, /rename$/, { name: 'calm' })
    assert.deepEqual([done.status, done.location], [303, '/n/acme/agents/calm'])
    assert.match((await browser.follow(done)).text, /quiet is called calm from now on/)
    const gone = await browser.get('/n/acme/agents/quiet')
    assert.equal(gone.status, 404)
    assert.match(gone.text, /There is no agent quiet@acme\. ?The page of agents shows who is here/)
  })

  test('an agent is deleted after the page has said what ends with it', async () => {
    await addAgent(stage.admin.scope, { namespace: 'acme', name: 'doomed' })
    const { token } = await createToken(stage.admin.scope, { namespace: 'acme', agent: 'doomed' })
    const sender = await createToken(stage.admin.scope, { namespace: 'acme', agent: 'backend' })
    const message = { to: 'doomed', content: 'Are you there?' }
    assert.equal((await call(stage.app, 'POST', '/api/messages', { token: sender.token, body: message })).status, 201)
    const browser = stage.browse(stage.admin)
    const page = await browser.get('/n/acme/agents/doomed')
    assert.match(page.text, /1 token stops working/)
    assert.match(page.text, /1 new message .*never be answered/)
    assert.match(page.text, /This cannot be undone\./)
    assert.doesNotMatch(page.text, /What it has sent/, 'it was never here')
    assert.match((await browser.get('/n/acme/agents/backend')).text, /What it has sent stays/)
    const done = await submit(browser, page, /delete$/)
    assert.deepEqual([done.status, done.location], [303, '/n/acme/agents'])
    assert.match((await browser.follow(done)).text, /doomed is deleted/)
    assert.ok(!(await names()).includes('doomed'))
    assert.equal((await call(stage.app, 'GET', '/api/whoami', { token })).status, 404)
    const again = await browser.post('/n/acme/agents/doomed/delete')
    assert.equal(again.status, 404)
  })

  test('a member is shown no form, and is refused what they send anyway', async () => {
    const browser = stage.browse(stage.member)
    const before = await names()
    const page = await browser.get('/n/acme/agents/backend')
    assert.equal(page.status, 200)
    assert.deepEqual(
      listForms(page.html).filter(({ action }) => action.startsWith('/n/')),
      [],
    )
    for (const path of ['', '/backend/rename', '/backend/delete']) {
      const answer = await browser.post(`/n/acme/agents${path}`, { name: 'mine' })
      assert.equal(answer.status, 403, path)
      assert.match(answer.text, /needs an owner or an admin/)
    }
    assert.deepEqual(await names(), before)
  })

  test('to a stranger the namespace does not exist', async () => {
    const browser = stage.browse(stage.stranger)
    await browser.get('/account')
    const paths = ['', '/backend', '?fragment=list', '/backend?fragment=hello']
    for (const path of paths) await assertSame404((namespace) => browser.get(`/n/${namespace}/agents${path}`))
    for (const path of ['', '/backend/rename', '/backend/delete']) {
      await assertSame404((namespace) => browser.post(`/n/${namespace}/agents${path}`, { name: 'mine' }))
    }
    assert.ok((await names()).includes('backend'))
  })

  /** Of a namespace of others, and of one that never was. */
  async function assertSame404(ask: (namespace: string) => Promise<{ status: number; text: string }>): Promise<void> {
    const [theirs, none] = [await ask('acme'), await ask('nowhere')]
    assert.deepEqual([theirs.status, none.status], [404, 404])
    assert.equal(theirs.text, none.text)
  }

  test('more than a page of agents is paged and can be searched, in the address', async () => {
    const { admin } = stage.database
    await admin`
      insert into patchcord.agents (namespace_uuid, name)
      select id, 'worker-' || to_char(i, 'FM000') from patchcord.namespaces, generate_series(1, 60) i where name = 'acme'`
    const browser = stage.browse(stage.member)
    const first = await browser.get('/n/acme/agents')
    const next = /href="([^"]+)" rel="next"/.exec(first.html)?.[1] ?? ''
    assert.match(next, /^\/n\/acme\/agents\?after=worker-/)
    const second = await browser.get(next)
    assert.match(second.text, /worker-060/)
    assert.doesNotMatch(second.text, /worker-001/)
    assert.match(second.html, /href="\/n\/acme\/agents"[^>]*>\s*Back to the start/)
    const found = await browser.get('/n/acme/agents?q=KER-06')
    assert.match(found.text, /worker-060/)
    assert.doesNotMatch(found.text, /worker-059/)
    const none = await browser.get(`/n/acme/agents?q=${encodeURIComponent('"><img src=x>')}`)
    assert.match(none.text, /No such agent/)
    assert.ok(!none.html.includes('<img'))
  })
})
