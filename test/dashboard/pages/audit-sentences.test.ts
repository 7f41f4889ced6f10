import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { describeAudit } from '../../../server/dashboard/pages/audit-sentences.ts'

const OLD = '019a0000-0000-7000-8000-000000000001'

describe('a change is told in a sentence', () => {
  const cases: [event: string, by: string | null, agent: string | null, detail: string | null, sentence: string][] = [
    ['token_created', 'Ada', 'backend', 'lap-3', 'Ada made the token “lap-3” of backend'],
    ['token_rotated', 'Ada', 'backend', `lap-3 in place of ${OLD}`, 'Ada rotated the token “lap-3” of backend'],
    ['token_revoked', 'operator', 'backend', 'lap-3', 'The operator revoked the token “lap-3” of backend'],
    ['token_banned', null, 'backend', null, 'The server banned a token of backend for a while'],
    ['agent_created', 'Ada', 'backend', null, 'Ada added the agent backend'],
    ['agent_renamed', 'Ada', 'backend', 'was api', 'Ada renamed the agent api to backend'],
    ['namespace_renamed', 'Ada', null, 'was acme', 'Ada renamed the namespace, which was acme'],
    ['namespace_paused', 'Ada', null, null, 'Ada paused the namespace: nothing is sent and nobody is woken'],
    ['member_added', 'Ada', null, 'Bob as admin', 'Ada added Bob as an admin'],
    ['member_added', 'Bob as admin', null, 'Bob as admin as member', 'Bob as admin joined as a member'],
    ['member_role_changed', 'Ada', null, 'Bob is admin, was member', 'Ada made Bob an admin (was a member)'],
    ['member_role_changed', 'Ada', null, 'Ada is member, was owner', 'Ada made themselves a member (was an owner)'],
    ['member_removed', 'Ada', null, 'Bob, was owner', 'Ada removed Bob (was an owner)'],
    ['member_removed', 'Bob', null, 'Bob, was member', 'Bob left (was a member)'],
    ['invite_created', 'Ada', null, 'as admin', 'Ada made an invite for an admin'],
    ['invite_revoked', 'Ada', null, 'as member', 'Ada revoked an invite for a member'],
  ]
  for (const [event, by_name, agent, detail, sentence] of cases) {
    test(sentence, () => {
      const { who, what } = describeAudit({ event, by_name, by_person_id: toPersonId(by_name), agent, detail })
      assert.equal(`${who} ${what}`, sentence)
    })
  }

  test('a person who is called operator is not the operator', () => {
    const facts = { event: 'agent_created', agent: 'backend', detail: null, by_name: 'operator' }
    assert.equal(describeAudit({ ...facts, by_person_id: 'p' }).who, 'operator')
    assert.equal(describeAudit({ ...facts, by_person_id: null }).who, 'The operator')
  })

  test('an event that this version does not know is shown with what belongs to it', () => {
    const { what } = describeAudit({
      event: 'room_closed',
      by_name: 'Ada',
      by_person_id: 'p',
      agent: 'backend',
      detail: 'kitchen',
    })
    assert.equal(what, 'room closed · backend · kitchen')
  })
})

function toPersonId(name: string | null): string | null {
  return name === null || name === 'operator' ? null : 'p'
}
