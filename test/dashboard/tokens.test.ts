import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { addAgent } from '../../server/domain/agents.ts'
import { foundNamespace } from '../../server/domain/namespaces.ts'
import { createToken, isTokenText, listTokensOf, type TokenCard } from '../../server/domain/tokens.ts'
import { call } from '../helpers/app.ts'
import type { Browser, PageAnswer } from '../helpers/dashboard.ts'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'
import { findForm, listForms, submit } from '../helpers/forms.ts'

const DAY_MS = 86_400_000
const NASTY = `lap & <b>"3"</b> 'x'`

describe('the pages of tokens', () => {
  let stage: Stage
  before(async () => {
    stage = await startStage()
  })
  after(() => stage?.close())

  async function tokens(): Promise<TokenCard[]> {
    return (await listTokensOf(stage.owner.scope, { namespace: 'acme', state: 'all' })).tokens
  }

  async function statusOf(token: string): Promise<number> {
    return (await call(stage.app, 'GET', '/api/whoami', { token })).status
  }

  /** Creates one by the form, and reads it off the page that shows it. */
  async function make(browser: Browser, values: Record<string, string>): Promise<PageAnswer & { token: string }> {
    const page = await browser.get('/n/acme/tokens?new=1')
    const answer = await submit(browser, page, '/n/acme/tokens', values)
    return { ...answer, token: readToken(answer) }
  }

  function readToken(page: PageAnswer): string {
    const [, token = ''] = /class="secret-value"[^>]*>\s*(pc_[\w-]+)\s*</.exec(page.html) ?? []
    return token
  }

  test('without an agent the page leads to the agents; with one it holds the form', async () => {
    const browser = stage.browse(stage.admin)
    const empty = await browser.get('/n/acme/tokens')
    assert.match(empty.text, /Add an agent first/)
    assert.deepEqual(
      listForms(empty.html).filter(({ action }) => action.startsWith('/n/')),
      [],
    )
    await addAgent(stage.admin.scope, { namespace: 'acme', name: 'backend' })
    const page = await browser.get('/n/acme/tokens?agent=backend&new=1')
    assert.deepEqual(Object.keys(findForm(page, '/n/acme/tokens').fields).sort(), [
      'agent',
      'csrf',
      'id',
      'label',
      'life',
    ])
    assert.equal(findForm(page, '/n/acme/tokens').fields.agent, 'backend')
    assert.doesNotMatch(page.text, /No token is like this|Filter|Text in the label|No active token/, 'the form is all')
    const closed = await browser.get('/n/acme/tokens?agent=backend')
    assert.match(closed.text, /Text in the label.*No token is like this/)
    assert.match(page.text, /When it ends, the agent is disconnected until it gets another one\./)
    assert.equal(findForm(page, '/n/acme/tokens').fields.life, '30', 'thirty days unless something else is chosen')
  })

  test('a token is made and shown once, beside what to paste, and works', async () => {
    const browser = stage.browse(stage.admin)
    const made = await make(browser, { agent: 'backend', label: NASTY })
    assert.equal(made.status, 201)
    assert.ok(isTokenText(made.token), made.token)
    assert.equal(made.headers.get('cache-control'), 'no-store')
    assert.ok(made.text.includes(NASTY) && !made.html.includes('<b>'))
    assert.match(made.text, /Shown this once/)
    assert.match(made.text, /Waiting for backend to say hello.*Go to backend/)
    assert.match(
      made.text,
      /1\. Once per machine.*claude plugin install.*2\. In the project.*connect --server \S+ --allow.*3\. There.*allow the server “patchcord”/,
    )
    assert.ok(made.text.includes(`patchcord connect --server ${stage.app.url}`))
    for (const client of ['Claude Code', 'Codex', 'Cursor', 'Gemini CLI', 'VS Code', 'OpenCode']) {
      assert.ok(made.text.includes(client), client)
    }
    assert.equal(await statusOf(made.token), 200)
    const list = await browser.get('/n/acme/tokens')
    assert.ok(list.text.includes(NASTY) && !list.html.includes('<b>'))
    assert.ok(!list.html.includes(made.token))
    assert.ok(!stage.app.logs.join('').includes(made.token))
  })

  test('the line of the new token turns when that token was used, and not before', async () => {
    const browser = stage.browse(stage.admin)
    const made = await make(browser, { agent: 'backend', label: 'second' })
    const [, path = ''] = /data-live="([^"]+)"/.exec(made.html) ?? []
    const url = path.replaceAll('&amp;', '&')
    assert.match(url, /^\/n\/acme\/agents\/backend\?/)
    assert.match((await browser.get(url)).text, /^Waiting for backend/)
    await statusOf(made.token)
    assert.match((await browser.get(url)).text, /^backend has said hello/)
  })

  test('the same form sent twice makes one token, and says so', async () => {
    const browser = stage.browse(stage.admin)
    const page = await browser.get('/n/acme/tokens?new=1')
    const { action, fields } = findForm(page, '/n/acme/tokens')
    const before = (await tokens()).length
    const first = await browser.post(action, { ...fields, label: 'twice' })
    const second = await browser.post(action, { ...fields, label: 'twice' })
    assert.deepEqual([first.status, second.status], [201, 409])
    assert.match(second.text, /No second token was made.*This form was sent before/)
    assert.equal(readToken(second), '')
    assert.equal((await tokens()).length, before + 1)
  })

  for (const [life, days] of [
    ['7', 7],
    ['30', 30],
    ['90', 90],
    ['365', 365],
    ['never', null],
  ] as const) {
    test(`a token ends ${days === null ? 'never' : `after ${days} days`} when that is chosen`, async () => {
      await make(stage.browse(stage.admin), { agent: 'backend', label: `life ${life}`, life })
      const made = (await tokens()).find(({ label }) => label === `life ${life}`)
      const ends = made?.expires_at ? new Date(made.expires_at).getTime() - Date.now() : null
      if (days === null) assert.deepEqual([made?.expires_at, ends], [null, null])
      else assert.ok(Math.abs((ends ?? 0) - days * DAY_MS) < 60_000, String(ends))
    })
  }

  test('what is wrong in the form is refused with a sentence, and what was typed stays', async () => {
    const browser = stage.browse(stage.admin)
    const before = (await tokens()).length
    const page = await browser.get('/n/acme/tokens?new=1')
    const { action, fields } = findForm(page, '/n/acme/tokens')
    const cases: [Record<string, string>, number, RegExp][] = [
      [{ label: '' }, 400, /A label has 1 to 80/],
      [{ label: 'x'.repeat(81) }, 400, /A label has 1 to 80/],
      [{ label: NASTY, life: '31' }, 400, /A token ends after/],
      [{ label: NASTY, agent: 'nobody' }, 404, /There is no agent nobody@acme/],
      [{ label: NASTY, id: '' }, 400, /The form was not whole/],
    ]
    for (const [change, status, sentence] of cases) {
      const answer = await browser.post(action, { ...fields, label: 'fine', ...change })
      assert.equal(answer.status, status, JSON.stringify(change))
      assert.match(answer.text, sentence)
      assert.equal(findForm(answer, '/n/acme/tokens').fields.label, change.label ?? 'fine')
      if (sentence.source.startsWith('A label')) assert.match(answer.html, /id="label"[^>]*autofocus/)
      assert.ok(!answer.html.includes('<b>'))
    }
    assert.equal((await tokens()).length, before)
  })

  test('a token is rotated with an overlap: both work, and the page says until when', async () => {
    const browser = stage.browse(stage.admin)
    const old = await make(browser, { agent: 'backend', label: 'to rotate' })
    const list = await browser.get('/n/acme/tokens?q=to+rotate')
    const form = findForm(list, /rotate$/)
    assert.equal(form.fields.overlap, '600', 'ten minutes unless something else is chosen')
    const fresh = await submit(browser, list, /rotate$/, { overlap: '3600' })
    assert.equal(fresh.status, 201)
    assert.match(fresh.text, /The old token still works for a while ?It ends in (?:59 min|60 min|1 h)/)
    assert.deepEqual([await statusOf(old.token), await statusOf(readToken(fresh))], [200, 200])
    const both = await browser.get('/n/acme/tokens?q=to+rotate')
    assert.equal(both.text.match(/ · ends /g)?.length, 1)
    assert.match(both.text, / · replaced, ends in (?:59 min|60 min|1 h)/)
    const again = await submit(browser, list, /rotate$/)
    assert.equal(again.status, 409)
    assert.match(again.text, /Nothing was rotated.*successor already/)
  })

  test('a token is rotated without an overlap: the old one has ended', async () => {
    const browser = stage.browse(stage.admin)
    const old = await make(browser, { agent: 'backend', label: 'at once' })
    const list = await browser.get('/n/acme/tokens?q=at+once')
    const fresh = await submit(browser, list, /rotate$/, { overlap: '0' })
    assert.match(fresh.text, /The old token has ended/)
    assert.deepEqual([await statusOf(old.token), await statusOf(readToken(fresh))], [403, 200])
    const crafted = await browser.post(findForm(list, /rotate$/).action, { overlap: '-1' })
    assert.equal(crafted.status, 400)
  })

  test('a token is revoked at once, after the page has said who is disconnected; twice is refused', async () => {
    const browser = stage.browse(stage.admin)
    const { token } = await make(browser, { agent: 'backend', label: 'to revoke' })
    const list = await browser.get('/n/acme/tokens?agent=backend&q=to+revoke')
    assert.match(list.text, /backend is disconnected where it uses “to revoke” within a second.*cannot be undone/)
    const done = await submit(browser, list, /revoke$/)
    assert.deepEqual([done.status, done.location], [303, '/n/acme/tokens?agent=backend'])
    assert.match((await browser.follow(done)).text, /The token is revoked/)
    assert.equal(await statusOf(token), 403)
    const again = await submit(browser, list, /revoke$/)
    assert.equal(again.status, 409)
    assert.match(again.text, /Nothing was changed ?This token is revoked already\. Make a new token instead\./)
    assert.match(
      (await browser.get('/n/acme/tokens?q=to+revoke&state=ended')).text,
      /revoked just now|revoked \d+ s ago/,
    )
    assert.match((await browser.get('/n/acme/tokens?q=to+revoke')).text, /No token is like this/)
  })

  test('a banned token says until when, an expired one since when', async () => {
    const { admin } = stage.database
    await createToken(stage.admin.scope, { namespace: 'acme', agent: 'backend', label: 'banned one' })
    await createToken(stage.admin.scope, { namespace: 'acme', agent: 'backend', label: 'expired one' })
    await admin`update patchcord.tokens set banned_until = now() + interval '4 min 30 s' where label = 'banned one'`
    await admin`update patchcord.tokens set expires_at = now() - interval '3 days' where label = 'expired one'`
    const browser = stage.browse(stage.member)
    assert.match((await browser.get('/n/acme/tokens?q=banned')).text, /banned until in 4 min.*never used · never ends/)
    assert.match(
      (await browser.get('/n/acme/tokens?q=expired&state=all')).text,
      /expired · never used · ended 3 days ago/,
    )
  })

  test('filters stand in the address: agent, state and text', async () => {
    await addAgent(stage.admin.scope, { namespace: 'acme', name: 'docs' })
    await createToken(stage.admin.scope, { namespace: 'acme', agent: 'docs', label: 'of docs' })
    const browser = stage.browse(stage.member)
    const page = await browser.get('/n/acme/tokens?agent=docs&state=all&q=OF')
    assert.match(page.text, /of docs/)
    assert.doesNotMatch(page.text, /to rotate/)
    assert.match(page.html, /name="agent"[^>]*value="docs"/)
    assert.match(page.html, /<option value="all" selected/)
    assert.match(page.html, /name="q"[^>]*value="OF"/)
    assert.match(page.html, /href="\/n\/acme\/tokens"[^>]*>\s*Clear/)
  })

  test('more than a page is paged, and keeps its filter', async () => {
    const { admin } = stage.database
    await admin`
      insert into patchcord.tokens (namespace_uuid, agent_uuid, hash, label)
      select a.namespace_uuid, a.id, sha256(convert_to('many ' || i, 'utf8')), 'many ' || i
      from patchcord.agents a, generate_series(1, 60) i where a.name = 'docs'`
    const browser = stage.browse(stage.member)
    const first = await browser.get('/n/acme/tokens?agent=docs&q=many')
    const next = (/href="([^"]+)" rel="next"/.exec(first.html)?.[1] ?? '').replaceAll('&amp;', '&')
    assert.match(next, /agent=docs.*q=many.*before=/)
    const second = await browser.get(next)
    assert.equal(second.status, 200)
    const shown = [first, second].map(({ html }) => html.match(/<tr id="row-/g)?.length)
    assert.deepEqual(shown, [50, 10])
    assert.equal((await browser.get('/n/acme/tokens?before=nonsense')).status, 400)
  })

  test('where there are more agents than fit a list the name is typed', async () => {
    const { admin } = stage.database
    await admin`
      insert into patchcord.agents (namespace_uuid, name)
      select id, 'worker-' || i from patchcord.namespaces, generate_series(1, 60) i where name = 'acme'`
    const browser = stage.browse(stage.admin)
    const refused = await make(browser, { agent: 'worker-61', label: 'typed' })
    assert.equal(refused.status, 404)
    assert.match(refused.html, /name="agent"[^>]*value="worker-61"[^>]*aria-invalid="true"/)
    assert.ok(isTokenText((await make(browser, { agent: 'worker-60', label: 'typed' })).token))
  })

  test('a member is shown no form, and is refused what they send anyway', async () => {
    const browser = stage.browse(stage.member)
    const page = await browser.get('/n/acme/tokens')
    assert.deepEqual(
      listForms(page.html).filter(({ action }) => action.startsWith('/n/')),
      [],
    )
    const before = (await tokens()).length
    const [{ id = '' } = {}] = await tokens()
    const made = await browser.post('/n/acme/tokens', { agent: 'backend', label: 'mine', life: '7', id: 'x' })
    const rotated = await browser.post(`/n/acme/tokens/${id}/rotate`, { overlap: '600' })
    const revoked = await browser.post(`/n/acme/tokens/${id}/revoke`)
    assert.deepEqual([made.status, rotated.status, revoked.status], [403, 403, 403])
    assert.equal((await tokens()).length, before)
    assert.ok((await tokens()).every((token) => token.id !== id || token.revoked_at === null))
  })

  test('a token of another namespace is none, whoever asks', async () => {
    await foundNamespace(stage.stranger.scope, { name: 'mine' })
    const [{ id = '' } = {}] = await tokens()
    const browser = stage.browse(stage.stranger)
    await browser.get('/account')
    const none = '019a0000-0000-7000-8000-000000000000'
    for (const action of ['rotate', 'revoke']) {
      const answers = [
        await browser.post(`/n/mine/tokens/${id}/${action}`, { overlap: '600' }),
        await browser.post(`/n/mine/tokens/${none}/${action}`, { overlap: '600' }),
        await browser.post(`/n/mine/tokens/nonsense/${action}`, { overlap: '600' }),
      ]
      assert.deepEqual(
        answers.map(({ status }) => status),
        [404, 404, 404],
        action,
      )
      const [first, ...others] = answers.map(({ text }) => text)
      assert.deepEqual(others, [first, first])
      assert.match(first ?? '', /There is no such token/)
    }
    assert.equal((await tokens()).find((token) => token.id === id)?.revoked_at, null)
  })

  test('to a stranger the namespace does not exist', async () => {
    const browser = stage.browse(stage.stranger)
    await browser.get('/account')
    const form = { agent: 'backend', label: 'x', life: '7', id: 'x', overlap: '600' }
    const [{ id = '' } = {}] = await tokens()
    for (const path of ['', `/${id}/rotate`, `/${id}/revoke`]) {
      const [theirs, none] = [
        await browser.post(`/n/acme/tokens${path}`, form),
        await browser.post(`/n/nowhere/tokens${path}`, form),
      ]
      assert.deepEqual([theirs.status, none.status], [404, 404], path)
      assert.equal(theirs.text, none.text)
    }
    const [theirs, none] = [await browser.get('/n/acme/tokens'), await browser.get('/n/nowhere/tokens')]
    assert.deepEqual([theirs.status, none.status, theirs.text], [404, 404, none.text])
  })
})
