import type { AuditEvent } from '../../domain/security-log.ts'

/** What a sentence is made of. */
export type AuditFacts = Pick<AuditEvent, 'event' | 'agent' | 'detail' | 'by_name' | 'by_person_id'>

interface Parts {
  agent: string
  detail: string
  who: string
}

const ROLES = '(owner|admin|member)'
const ARTICLE: Record<string, string> = { owner: 'an owner', admin: 'an admin', member: 'a member' }

const SENTENCES: Record<string, (parts: Parts) => string> = {
  token_created: ({ agent, detail }) => `made the token ${quote(detail)} of ${agent}`,
  token_rotated: ({ agent, detail }) => `rotated the token ${quote(labelOf(detail))} of ${agent}`,
  token_revoked: ({ agent, detail }) => `revoked the token ${quote(detail)} of ${agent}`,
  token_restored: ({ agent, detail }) => `made the revoked token ${quote(detail)} of ${agent} valid again`,
  token_deleted: ({ detail }) => `deleted the token ${quote(detail)}`,
  token_banned: ({ agent, detail }) => `banned a token of ${agent} for a while${inBrackets(detail)}`,
  agent_created: ({ agent }) => `added the agent ${agent}`,
  agent_renamed: ({ agent, detail }) => `renamed the agent ${formerName(detail)} to ${agent}`,
  agent_deleted: ({ agent }) => `deleted the agent ${agent}`,
  agent_restored: ({ agent }) => `brought the deleted agent ${agent} back`,
  namespace_created: () => 'founded the namespace',
  namespace_renamed: ({ detail }) => `renamed the namespace, which was ${formerName(detail)}`,
  namespace_paused: () => 'paused the namespace: nothing is sent and nobody is woken',
  namespace_resumed: () => 'resumed the namespace',
  namespace_deleted: () => 'deleted the namespace',
  namespace_restored: () => 'brought the deleted namespace back',
  member_added: describeAdded,
  member_role_changed: describeRoleChange,
  member_removed: describeRemoved,
  invite_created: ({ detail }) => `made an invite for ${roleIn(detail)}`,
  invite_used: ({ detail }) => `used an invite for ${roleIn(detail)}`,
  invite_revoked: ({ detail }) => `revoked an invite for ${roleIn(detail)}`,
}

/** Who did it, and what, so that both make a sentence. Names are those of then. */
export function describeAudit(facts: AuditFacts): { who: string; what: string } {
  const who = nameActor(facts)
  const parts = { agent: facts.agent ?? 'a deleted agent', detail: facts.detail ?? '', who }
  const describe = SENTENCES[facts.event]
  return { who, what: describe ? describe(parts) : describeUnknown(facts) }
}

/** Whoever calls themselves operator is a person all the same. */
function nameActor({ by_name, by_person_id }: AuditFacts): string {
  if (by_name === null) return 'The server'
  return by_name === 'operator' && by_person_id === null ? 'The operator' : by_name
}

function describeAdded({ detail, who }: Parts): string {
  const [, name, role] = new RegExp(`^(.*) as ${ROLES}$`, 's').exec(detail) ?? []
  if (name === undefined) return `added ${detail}`
  return name === who ? `joined as ${withArticle(role)}` : `added ${name} as ${withArticle(role)}`
}

function describeRoleChange({ detail, who }: Parts): string {
  const [, name, role, former] = new RegExp(`^(.*) is ${ROLES}, was ${ROLES}$`, 's').exec(detail) ?? []
  if (name === undefined) return `changed a role: ${detail}`
  return `made ${name === who ? 'themselves' : name} ${withArticle(role)} (was ${withArticle(former)})`
}

function describeRemoved({ detail, who }: Parts): string {
  const [, name, role] = new RegExp(`^(.*), was ${ROLES}$`, 's').exec(detail) ?? []
  if (name === undefined) return `removed ${detail}`
  return name === who ? `left (was ${withArticle(role)})` : `removed ${name} (was ${withArticle(role)})`
}

/** An event that a newer server has written. */
function describeUnknown({ event, agent, detail }: AuditFacts): string {
  const words = [event.replaceAll('_', ' '), agent, detail].filter((word) => word !== null && word !== '')
  return words.join(' · ')
}

/** The detail of a rotation is `LABEL in place of ID`. */
function labelOf(detail: string): string {
  return detail.replace(/ in place of [0-9a-f-]{36}$/, '')
}

function formerName(detail: string): string {
  return detail.replace(/^was /, '')
}

function roleIn(detail: string): string {
  return withArticle(detail.replace(/^as /, ''))
}

function withArticle(role = ''): string {
  return ARTICLE[role] ?? role
}

function quote(label: string): string {
  return `“${label}”`
}

function inBrackets(detail: string): string {
  return detail === '' ? '' : ` (${detail})`
}
