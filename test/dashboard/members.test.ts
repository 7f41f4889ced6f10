import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { findInvite, listInvites, listMembers, setRole } from '../../server/domain/members.ts'
import { createBrowser, type PageAnswer } from '../helpers/dashboard.ts'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'
import { findForm, listForms, submit } from '../helpers/forms.ts'
import { joinAs } from '../helpers/people.ts'

const NASTY = `Bob & <i>"B"</i> 'x'`

describe('the page of members', () => {
  let stage: Stage
  before(async () => {
    stage = await startStage()
  })
  after(() => stage?.close())

  async function roles(): Promise<Record<string, string>> {
    const members = await listMembers(stage.owner.scope, { namespace: 'acme' })
    return Object.fromEntries(members.map(({ name, role }) => [name, role]))
  }

  function readInvite(page: PageAnswer): string {
    return /\/invite\/([\w-]{43})/.exec(page.html)?.[1] ?? ''
  }

  test('everybody sees who is here and who may do what; names are shown as text', async () => {
    await joinAs(stage.database, stage.owner, 'acme', 'member', NASTY)
    const page = await stage.browse(stage.member).get('/n/acme/members')
    assert.ok(page.text.includes(NASTY) && !page.html.includes('<i>'))
    assert.match(page.text, /Max \(you\)/)
    assert.match(page.text, /You are a member here/)
    assert.match(page.text, /owneralso invites and removes people/)
  })

  test('only owners are shown forms; everybody may leave', async () => {
    const own = await stage.browse(stage.owner).get('/n/acme/members')
    const ownForms = listForms(own.html).filter(({ action }) => action.startsWith('/n/'))
    assert.ok(ownForms.some(({ action }) => action.endsWith('/invites')))
    assert.equal(ownForms.filter(({ action }) => action.endsWith('/role')).length, 3, 'not of the only owner')
    for (const person of [stage.admin, stage.member]) {
      const page = await stage.browse(person).get('/n/acme/members')
      const forms = listForms(page.html).filter(({ action }) => action.startsWith('/n/'))
      assert.deepEqual(
        forms.map(({ action }) => action),
        [`/n/acme/members/${person.personId}/remove`],
      )
    }
  })

  test('an invite is made, its link is shown once, works once, and stands in the list until then', async () => {
    const browser = stage.browse(stage.owner)
    const made = await submit(browser, await browser.get('/n/acme/members'), /invites$/, { role: 'admin' })
    assert.equal(made.status, 201)
    assert.match(made.text, /Invite for an admin.*shown this once/)
    const code = readInvite(made)
    assert.equal((await findInvite(stage.database.api, code))?.role, 'admin')
    const list = await browser.get('/n/acme/members')
    assert.match(list.text, /Open invites.*for an admin/)
    assert.ok(!list.html.includes(code))
    const guest = createBrowser(stage.app)
    await guest.get(`/invite/${code}`)
    const joined = await guest.post(`/invite/${code}`, { name: 'Joan' })
    assert.deepEqual([joined.status, joined.location], [303, '/n/acme/agents'])
    assert.equal((await roles()).Joan, 'admin')
    assert.doesNotMatch((await browser.get('/n/acme/members')).text, /Open invites/)
  })

  test('the same form sent twice makes one invite, and says so', async () => {
    const browser = stage.browse(stage.owner)
    const page = await browser.get('/n/acme/members')
    const first = await submit(browser, page, /invites$/)
    const second = await submit(browser, page, /invites$/)
    assert.deepEqual([first.status, second.status], [201, 409])
    assert.match(second.text, /No second invite was made.*sent before/)
    assert.equal(readInvite(second), '')
    assert.equal((await listInvites(stage.owner.scope, { namespace: 'acme' })).length, 1)
  })

  test('an invite is revoked: its link opens nothing; twice it is not found', async () => {
    const browser = stage.browse(stage.owner)
    const page = await browser.get('/n/acme/members')
    const { action } = findForm(page, /invites\/[^/]+\/revoke$/)
    const done = await submit(browser, page, action)
    assert.match((await browser.follow(done)).text, /The invite is revoked/)
    assert.deepEqual(await listInvites(stage.owner.scope, { namespace: 'acme' }), [])
    assert.equal((await browser.post(action)).status, 404)
  })

  test('an owner changes a role', async () => {
    const browser = stage.browse(stage.owner)
    const page = await browser.get('/n/acme/members')
    const done = await submit(browser, page, `/n/acme/members/${stage.member.personId}/role`, { role: 'admin' })
    assert.equal(done.status, 303)
    assert.match((await browser.follow(done)).text, /Max is an admin now/)
    assert.equal((await roles()).Max, 'admin')
  })

  test('two owners at once: the second is told what is so now, and overwrites nothing', async () => {
    const { personId } = stage.member
    const browser = stage.browse(stage.owner)
    const page = await browser.get('/n/acme/members')
    await setRole(stage.owner.scope, { namespace: 'acme', personId, role: 'member', seen: 'admin' })
    const answer = await submit(browser, page, `/n/acme/members/${personId}/role`, { role: 'owner' })
    assert.equal(answer.status, 409)
    assert.match(
      answer.text,
      /The role was not changed.*Somebody else has changed this meanwhile: the role is member now/,
    )
    assert.equal(findForm(answer, `/n/acme/members/${personId}/role`).fields.seen, 'member')
    assert.equal((await roles()).Max, 'member')
  })

  test('the last owner cannot stop being one, nor leave, nor be removed', async () => {
    const browser = stage.browse(stage.owner)
    const page = await browser.get('/n/acme/members')
    assert.match(page.text, /You are the only owner/)
    const path = `/n/acme/members/${stage.owner.personId}`
    const demoted = await browser.post(`${path}/role`, { role: 'member', seen: 'owner' })
    const left = await browser.post(`${path}/remove`)
    assert.deepEqual([demoted.status, left.status], [409, 409])
    assert.match(demoted.text, /is the last owner of acme/)
    assert.match(left.text, /Nobody was removed.*is the last owner of acme/)
    assert.ok(Object.values(await roles()).includes('owner'))
  })

  test('what is no role is refused', async () => {
    const browser = stage.browse(stage.owner)
    await browser.get('/n/acme/members')
    const path = `/n/acme/members/${stage.member.personId}/role`
    const answers = [
      await browser.post(path, { role: 'king', seen: 'member' }),
      await browser.post('/n/acme/members/invites', { role: 'king', id: 'x' }),
      await browser.post('/n/acme/members/invites', { role: 'member' }),
    ]
    assert.deepEqual(
      answers.map(({ status }) => status),
      [400, 400, 400],
    )
    assert.equal((await roles()).Max, 'member')
  })

  test('whoever is no owner is refused what they send anyway', async () => {
    const before = await roles()
    for (const person of [stage.admin, stage.member]) {
      const browser = stage.browse(person)
      await browser.get('/n/acme/members')
      const answers = [
        await browser.post(`/n/acme/members/${person.personId}/role`, { role: 'owner', seen: 'member' }),
        await browser.post(`/n/acme/members/${stage.owner.personId}/remove`),
        await browser.post('/n/acme/members/invites', { role: 'owner', id: 'x' }),
        await browser.post('/n/acme/members/invites/019a0000-0000-7000-8000-000000000000/revoke'),
      ]
      assert.deepEqual(
        answers.map(({ status }) => status),
        [403, 403, 403, 403],
      )
    }
    assert.deepEqual(await roles(), before)
  })

  test('a member is removed after the page has said what stays, and sees nothing from then on', async () => {
    const browser = stage.browse(stage.owner)
    const page = await browser.get('/n/acme/members')
    assert.match(page.text, /Ann sees nothing of acme from the next click on.*revoke those that this person has/)
    const done = await submit(browser, page, `/n/acme/members/${stage.admin.personId}/remove`)
    assert.match((await browser.follow(done)).text, /That person is no member any more/)
    assert.equal((await roles()).Ann, undefined)
    assert.equal((await stage.browse(stage.admin).get('/n/acme/members')).status, 404)
    assert.equal((await submit(browser, page, `/n/acme/members/${stage.admin.personId}/remove`)).status, 404)
  })

  test('a member leaves', async () => {
    const browser = stage.browse(stage.member)
    const done = await submit(browser, await browser.get('/n/acme/members'), /remove$/)
    assert.deepEqual([done.status, done.location], [303, '/'])
    assert.match((await browser.follow(done)).text, /You have left acme/)
    assert.equal((await browser.get('/n/acme/members')).status, 404)
  })

  test('to a stranger the namespace does not exist', async () => {
    const browser = stage.browse(stage.stranger)
    await browser.get('/account')
    const form = { role: 'owner', seen: 'owner', id: 'x' }
    const paths = [
      `/${stage.owner.personId}/role`,
      `/${stage.owner.personId}/remove`,
      '/invites',
      '/invites/019a0000-0000-7000-8000-000000000000/revoke',
    ]
    for (const path of paths) {
      const theirs = await browser.post(`/n/acme/members${path}`, form)
      const none = await browser.post(`/n/nowhere/members${path}`, form)
      assert.deepEqual([theirs.status, none.status], [404, 404], path)
      assert.equal(theirs.text, none.text)
    }
    const [theirs, none] = [await browser.get('/n/acme/members'), await browser.get('/n/nowhere/members')]
    assert.deepEqual([theirs.status, none.status, theirs.text], [404, 404, none.text])
  })
})
