import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { addAgent, deleteAgent, renameMyAgent } from '../../server/domain/agents.ts'
import { removeMember, setRole } from '../../server/domain/members.ts'
import { setPaused } from '../../server/domain/namespaces.ts'
import { renamePerson } from '../../server/domain/people.ts'
import { createToken, revokeMyToken, revokeToken, rotateMyToken } from '../../server/domain/tokens.ts'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'

const NASTY = `Ann & <u>"A"</u> 'x'`

describe('the page of the audit', () => {
  let stage: Stage
  before(async () => {
    stage = await startStage()
  })
  after(() => stage?.close())

  test('every change is told in a sentence with who and when, the latest first; names and labels are text', async () => {
    const { admin, owner, member, database } = stage
    await renamePerson(admin.scope, { name: NASTY })
    await addAgent(admin.scope, { namespace: 'acme', name: 'api' })
    await renameMyAgent(admin.scope, { namespace: 'acme', agent: 'api', newName: 'backend' })
    const first = await createToken(admin.scope, { namespace: 'acme', agent: 'backend', label: 'lap & <b>3</b>' })
    const second = await rotateMyToken(admin.scope, { namespace: 'acme', id: first.id, overlapSeconds: 600 })
    await revokeMyToken(admin.scope, { namespace: 'acme', id: first.id })
    await revokeToken(database.admin, second.id)
    await setPaused(admin.scope, { namespace: 'acme', paused: true })
    await setPaused(admin.scope, { namespace: 'acme', paused: false })
    await deleteAgent(admin.scope, { namespace: 'acme', agent: 'backend' })
    await setRole(owner.scope, { namespace: 'acme', personId: member.personId, role: 'admin', seen: 'member' })
    await removeMember(owner.scope, { namespace: 'acme', personId: member.personId })
    const page = await stage.browse(admin).get('/n/acme/audit')
    assert.equal(page.status, 200)
    const sentences = [
      `${owner.name} removed Max (was an admin)`,
      `${owner.name} made Max an admin (was a member)`,
      `${NASTY} deleted the agent backend`,
      `${NASTY} resumed the namespace`,
      `${NASTY} paused the namespace: nothing is sent and nobody is woken`,
      'The operator revoked the token “lap & <b>3</b>” of backend',
      `${NASTY} revoked the token “lap & <b>3</b>” of backend`,
      `${NASTY} rotated the token “lap & <b>3</b>” of backend`,
      `${NASTY} made the token “lap & <b>3</b>” of backend`,
      `${NASTY} renamed the agent api to backend`,
      `${NASTY} added the agent api`,
      `${owner.name} founded the namespace`,
    ]
    const places = sentences.map((sentence) => page.text.indexOf(sentence))
    assert.deepEqual(
      sentences.filter((_, index) => places[index] === -1),
      [],
      page.text,
    )
    assert.deepEqual(
      [...places].sort((a, b) => a - b),
      places,
    )
    assert.ok(!page.html.includes('<u>') && !page.html.includes('<b>3'))
    assert.match(page.html, /<time datetime="\d{4}-\d\d-\d\dT/)
  })

  test('nothing of another namespace is in it', async () => {
    const page = await stage.browse(stage.stranger).get('/n/elsewhere/audit')
    assert.match(page.text, /founded the namespace/)
    assert.doesNotMatch(page.text, /backend/)
  })

  test('more than a page is paged', async () => {
    await stage.database.admin`
      insert into patchcord.security_log (event, namespace, namespace_uuid, agent)
      select 'agent_created', name, id, 'worker-' || i from patchcord.namespaces, generate_series(1, 120) i
      where name = 'acme'`
    const browser = stage.browse(stage.admin)
    const first = await browser.get('/n/acme/audit')
    assert.match(first.text, /added the agent worker-120/)
    assert.doesNotMatch(first.text, /added the agent worker-20[^0-9]/)
    const next = /href="([^"]+)" rel="next"/.exec(first.html)?.[1] ?? ''
    const second = await browser.get(next)
    assert.match(second.text, /added the agent worker-20[^0-9]/)
    assert.match(second.text, /founded the namespace/)
    assert.match(second.html, /href="\/n\/acme\/audit"[^>]*>\s*Back to the start/)
    assert.equal((await browser.get('/n/acme/audit?before=nonsense')).status, 400)
    assert.match((await browser.get('/n/acme/audit?before=0')).text, /There is nothing older/)
  })

  test('to a stranger the namespace does not exist', async () => {
    const browser = stage.browse(stage.stranger)
    const [theirs, none] = [await browser.get('/n/acme/audit'), await browser.get('/n/nowhere/audit')]
    assert.deepEqual([theirs.status, none.status, theirs.text], [404, 404, none.text])
  })
})
