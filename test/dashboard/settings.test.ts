import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { addAgent } from '../../server/domain/agents.ts'
import { listMyNamespaces } from '../../server/domain/namespaces.ts'
import { createToken } from '../../server/domain/tokens.ts'
import { call } from '../helpers/app.ts'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'
import { listForms, submit } from '../helpers/forms.ts'

describe('the page of settings', () => {
  let stage: Stage
  before(async () => {
    stage = await startStage({ config: { retentionDays: 12 }, limits: { sendBurst: 7, newPerRecipientMax: 1_234 } })
    await addAgent(stage.admin.scope, { namespace: 'acme', name: 'backend' })
    await addAgent(stage.admin.scope, { namespace: 'acme', name: 'frontend' })
  })
  after(() => stage?.close())

  test('retention and limits of this server are shown to everybody', async () => {
    const { text } = await stage.browse(stage.member).get('/n/acme/settings')
    assert.match(text, /after 12 days/)
    assert.match(text, /7 at once, then one every 2 s/)
    assert.match(text, /up to 1,234 messages/)
    assert.match(text, /Connections of a token.*About ?Founded/)
  })

  test('a member is shown no form, an admin none to delete', async () => {
    const actions = async (person: Stage['owner']) => {
      const page = await stage.browse(person).get('/n/acme/settings')
      return listForms(page.html)
        .map(({ action }) => action)
        .filter((action) => action.startsWith('/n/'))
        .map((action) => action.split('/').at(-1))
    }
    assert.deepEqual(await actions(stage.member), [])
    assert.deepEqual(await actions(stage.admin), ['pause', 'name'])
    assert.deepEqual(await actions(stage.owner), ['pause', 'name', 'delete'])
  })

  test('a name that is too long is refused beside its field, whole, with the limit', async () => {
    const browser = stage.browse(stage.admin)
    const page = await browser.get('/n/acme/settings')
    assert.doesNotMatch(page.html, /maxlength|pattern=|autofocus/)
    const { status, html } = await submit(browser, page, /name$/, { name: 'a'.repeat(41) })
    assert.equal(status, 400)
    assert.match(html, /name="name"[^>]*value="a{41}"[^>]*autofocus/)
    assert.match(html, /class="field-error"[^>]*>[^<]*1 to 40/)
  })

  test('whoever may not is refused what they send anyway', async () => {
    const member = stage.browse(stage.member)
    await member.get('/n/acme/settings')
    const admin = stage.browse(stage.admin)
    await admin.get('/n/acme/settings')
    const answers = [
      await member.post('/n/acme/settings/pause', { paused: 'yes' }),
      await member.post('/n/acme/settings/name', { name: 'mine', seen: 'acme' }),
      await member.post('/n/acme/settings/delete'),
      await admin.post('/n/acme/settings/delete'),
    ]
    assert.deepEqual(
      answers.map(({ status }) => status),
      [403, 403, 403, 403],
    )
    const acme = (await listMyNamespaces(stage.owner.scope)).find(({ name }) => name === 'acme')
    assert.equal(acme?.paused_at, null)
  })

  test('the switch pauses after it has said what that does, and resumes', async () => {
    const browser = stage.browse(stage.admin)
    const page = await browser.get('/n/acme/settings')
    assert.match(page.text, /No agent of acme can send, and none is woken.*Resume undoes it/)
    const paused = await browser.follow(await submit(browser, page, /pause$/))
    assert.match(paused.text, /This namespace is paused.*Since just now/)
    assert.match(paused.text, /nobody is woken\. You can resume it below\./)
    const elsewhere = (await browser.get('/n/acme/agents')).text
    assert.match(elsewhere, /This namespace is paused/, 'every page says so')
    assert.match(elsewhere, /Paused just now: .*An owner or an admin can resume it in Settings\./)
    const theirs = (await stage.browse(stage.member).get('/n/acme/settings')).text
    assert.match(theirs, /An owner or an admin can resume it in Settings\./)
    assert.doesNotMatch(theirs, /You can resume/)
    assert.match((await stage.browse(stage.member).get('/n/acme/settings')).text, /nothing is sent and nobody is woken/)
    const running = await browser.follow(await submit(browser, paused, /pause$/))
    assert.match(running.text, /acme is running again/)
    assert.doesNotMatch(running.text, /This namespace is paused/)
    assert.equal((await browser.post('/n/acme/settings/pause', { paused: 'maybe' })).status, 400)
  })

  test('a taken name and what is no name are refused beside the field, and what was typed stays', async () => {
    const browser = stage.browse(stage.admin)
    const page = await browser.get('/n/acme/settings')
    assert.match(page.text, /listeners connect again by themselves/)
    const taken = await submit(browser, page, /name$/, { name: 'elsewhere' })
    assert.equal(taken.status, 409)
    assert.match(taken.html, /name="name"[^>]*value="elsewhere"[^>]*aria-invalid="true"/)
    assert.match(taken.text, /elsewhere-2/)
    const wrong = await submit(browser, page, /name$/, { name: '<b>No</b>' })
    assert.equal(wrong.status, 400)
    assert.ok(!wrong.html.includes('<b>'))
  })

  test('two admins rename at once: the second finds that name gone, and renames nothing', async () => {
    const [first, second] = [stage.browse(stage.admin), stage.browse(stage.owner)]
    const pages = [await first.get('/n/acme/settings'), await second.get('/n/acme/settings')] as const
    const done = await submit(first, pages[0], /name$/, { name: 'apex' })
    assert.deepEqual([done.status, done.location], [303, '/n/apex/settings'])
    assert.match((await first.follow(done)).text, /acme is called apex from now on/)
    assert.equal((await submit(second, pages[1], /name$/, { name: 'zenith' })).status, 404)
    const names = (await listMyNamespaces(stage.owner.scope)).map(({ name }) => name)
    assert.ok(names.includes('apex') && !names.includes('zenith'))
  })

  test('a form that saw another name is a conflict, in words', async () => {
    const browser = stage.browse(stage.admin)
    await browser.get('/n/apex/settings')
    const answer = await browser.post('/n/apex/settings/name', { name: 'zenith', seen: 'acme' })
    assert.equal(answer.status, 409)
    assert.match(answer.text, /Somebody else has renamed this namespace meanwhile/)
  })

  test('to a stranger the namespace does not exist', async () => {
    const browser = stage.browse(stage.stranger)
    await browser.get('/account')
    const form = { name: 'mine', seen: 'apex', paused: 'yes' }
    for (const path of ['/name', '/pause', '/delete']) {
      const theirs = await browser.post(`/n/apex/settings${path}`, form)
      const none = await browser.post(`/n/nowhere/settings${path}`, { ...form, seen: 'nowhere' })
      assert.deepEqual([theirs.status, none.status], [404, 404], path)
      assert.equal(theirs.text, none.text)
    }
    const [theirs, none] = [await browser.get('/n/apex/settings'), await browser.get('/n/nowhere/settings')]
    assert.deepEqual([theirs.status, none.status, theirs.text], [404, 404, none.text])
  })

  test('the namespace is deleted after the page has said what goes with it', async () => {
    const { token } = await createToken(stage.admin.scope, { namespace: 'apex', agent: 'backend' })
    const message = { to: 'frontend', content: 'Goodbye' }
    assert.equal((await call(stage.app, 'POST', '/api/messages', { token, body: message })).status, 201)
    const browser = stage.browse(stage.owner)
    const page = await browser.get('/n/apex/settings')
    assert.match(page.text, /2 agents are disconnected/)
    assert.match(page.text, /1 message is deleted/)
    assert.match(page.text, /3 members, you among them/)
    assert.match(page.text, /cannot be undone/)
    const done = await submit(browser, page, /delete$/)
    assert.deepEqual([done.status, done.location], [303, '/'])
    assert.match((await browser.follow(done)).text, /apex is deleted/)
    assert.equal((await browser.get('/n/apex/settings')).status, 404)
    assert.equal((await call(stage.app, 'GET', '/api/whoami', { token })).status, 404)
  })
})
