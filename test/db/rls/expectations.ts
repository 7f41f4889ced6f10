import type { World } from './world.ts'

export const OPERATIONS = ['select', 'insert', 'update', 'delete'] as const
export type Operation = (typeof OPERATIONS)[number]

/** Statements that aim at bob's row of a table, or the member's, or add another one in that name. */
export type Target = Record<Operation, string>

/**
 * Columns: recipient, sender, colleague, foreigner, claimless (patchcord_agent without claims), ticket of the recipient,
 * the same expired, ticket of the colleague, anon, patchcord_api before an entry function; then people: a member, an admin and
 * an owner of the namespace, an owner of another one, the member outside of any namespace, and patchcord_person without claims.
 * 1: reached, 0: no row, -: 42501.
 */
export const EXPECTATIONS: Record<string, Record<Operation, string>> = {
  namespaces: {
    select: '1 1 1 0 0 - - - - - 1 1 1 0 0 0',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - 0 1 1 0 0 0',
    delete: '- - - - - - - - - - - - - - - -',
  },
  agents: {
    select: '1 1 1 0 0 - - - - - 1 1 1 0 0 0',
    insert: '- - - - - - - - - - - 1 1 - - -',
    update: '- - - - - - - - - - 0 1 1 0 0 0',
    delete: '- - - - - - - - - - - - - - - -',
  },
  tokens: {
    select: '- - - - - - - - - - 1 1 1 0 0 0',
    insert: '- - - - - - - - - - - 1 1 - - -',
    update: '- - - - - - - - - - 0 1 1 0 0 0',
    delete: '- - - - - - - - - - - - - - - -',
  },
  threads: {
    select: '1 1 0 0 0 - - - - - 1 1 1 0 0 0',
    insert: '1 - - - - - - - - - - - - - - -',
    update: '1 - 0 0 0 - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  message_bodies: {
    select: '1 1 0 0 0 - - - - - 1 1 1 0 0 0',
    insert: '1 - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  agent_messages: {
    select: '1 1 0 0 0 1 0 0 - - 1 1 1 0 0 0',
    insert: '1 - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  idempotency_keys: {
    select: '1 0 0 0 0 - - - - - - - - - - -',
    insert: '1 - - - - - - - - - - - - - - -',
    update: '1 0 0 0 0 - - - - - - - - - - -',
    delete: '1 0 0 0 0 - - - - - - - - - - -',
  },
  deliveries: {
    select: '1 1 0 0 0 - - - - - 1 1 1 0 0 0',
    insert: '- - - - - - - - - - - - - - - -',
    update: '1 0 0 0 0 - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  presence: {
    select: '1 1 1 0 0 - - - - - 1 1 1 0 0 0',
    insert: '1 - - - - - - - - - - - - - - -',
    update: '1 0 0 0 0 - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  leases: {
    select: '1 1 1 0 0 - - - - - 1 1 1 0 0 0',
    insert: '1 - - - - - - - - - - - - - - -',
    update: '1 0 0 0 0 - - - - - - - - - - -',
    delete: '1 0 0 0 0 - - - - - - - - - - -',
  },
  former_names: {
    select: '- - - - - - - - - - - - - - - -',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  pairs: {
    select: '- - - - - - - - - - - - - - - -',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  security_log: {
    select: '- - - - - - - - - - 1 1 1 0 0 0',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  settings: {
    select: '- - - - - - - - - - - - - - - -',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  people: {
    select: '- - - - - - - - - - 1 1 1 0 1 0',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - 1 0 0 0 1 0',
    delete: '- - - - - - - - - - - - - - - -',
  },
  login_links: {
    select: '- - - - - - - - - - 1 0 0 0 1 0',
    insert: '- - - - - - - - - - 1 - - - 1 -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  sessions: {
    select: '- - - - - - - - - - 1 0 0 0 1 0',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - 1 0 0 0 1 0',
    delete: '- - - - - - - - - - - - - - - -',
  },
  members: {
    select: '- - - - - - - - - - 1 1 1 0 0 0',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - 0 0 1 0 0 0',
    delete: '- - - - - - - - - - 1 0 1 0 0 0',
  },
  message_words: {
    select: '- - - - - - - - - - - - - - - -',
    insert: '- - - - - - - - - - - - - - - -',
    update: '- - - - - - - - - - - - - - - -',
    delete: '- - - - - - - - - - - - - - - -',
  },
  invites: {
    select: '- - - - - - - - - - 1 1 1 0 0 0',
    insert: '- - - - - - - - - - - - 1 - - -',
    update: '- - - - - - - - - - 0 0 1 0 0 0',
    delete: '- - - - - - - - - - - - - - - -',
  },
}

/** What each probe runs. Inserts are complete and valid, so that only a grant or a policy can refuse them. */
export function listTargets(world: World): Record<string, Target> {
  const { alice, bob, carol, messageId, threadId, draftId } = world
  const ns = `'${bob.namespaceId}'`
  const me = `'${bob.agentId}'`
  const fresh = 'gen_random_uuid()'
  return {
    namespaces: on('namespaces', `id = ${ns}`, `name = 'taken'`, `(name) values ('new')`),
    agents: on('agents', `id = ${me}`, `name = 'robert'`, `(namespace_uuid, name) values (${ns}, 'new')`),
    tokens: on(
      'tokens',
      `agent_uuid = ${me}`,
      'revoked_at = null',
      `(namespace_uuid, agent_uuid, hash, label) values (${ns}, ${me}, decode(repeat('00', 32), 'hex'), 'x')`,
    ),
    threads: on(
      'threads',
      `id = '${threadId}'`,
      `resolved_at = now(), resolved_by_uuid = ${me}`,
      `(id, namespace_uuid, slug, participants, participants_key)
        values (${fresh}, ${ns}, 'mine', array[${me}]::uuid[], md5(${me}))`,
    ),
    message_bodies: on(
      'message_bodies',
      `id = '${messageId}'`,
      `content = 'forged'`,
      `(id, from_namespace_uuid, from_agent_uuid, content) values (${fresh}, ${ns}, ${me}, 'x')`,
    ),
    agent_messages: on(
      'agent_messages',
      `id = '${messageId}'`,
      'wake_at = null',
      `(id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid, namespace_id, from_agent, to_agent, kind,
        urgency) values ('${draftId}', ${ns}, ${ns}, ${me}, '${carol.agentId}', 'acme', 'bob', 'carol', 'message', 'normal')`,
    ),
    idempotency_keys: on(
      'idempotency_keys',
      `agent_uuid = ${me}`,
      `body_hash = 'x'`,
      `(agent_uuid, key, body_hash) values (${me}, 'new', 'x')`,
    ),
    // The row exists for every message, so a second one must be refused before the key is; bob did not send this message.
    deliveries: on(
      'deliveries',
      `message_id = '${messageId}'`,
      `state = 'done'`,
      `(message_id, to_agent_uuid, from_agent_uuid, state)
        values ('${messageId}', '${carol.agentId}', '${alice.agentId}', 'open')`,
    ),
    presence: {
      ...on('presence', `agent_uuid = ${me}`, `state = 'idle'`, ''),
      insert: `insert into patchcord.presence (agent_uuid, namespace_uuid, state) values (${me}, ${ns}, 'idle')
        on conflict (agent_uuid) do update set state = 'idle'`,
    },
    leases: on(
      'leases',
      `agent_uuid = ${me}`,
      'expires_at = now()',
      `(agent_uuid, session, namespace_uuid, token_uuid, expires_at) values (${me}, 'new', ${ns}, '${bob.tokenId}', now())`,
    ),
    former_names: on(
      'former_names',
      `agent_uuid = ${me}`,
      `name = 'x'`,
      `(name, namespace_uuid, agent_uuid) values ('x', ${ns}, ${me})`,
    ),
    pairs: on('pairs', 'true', 'turns = 0', `(low_uuid, high_uuid) values (${me}, ${me})`),
    security_log: on(
      'security_log',
      `token_uuid = '${bob.tokenId}'`,
      `event = 'token_revoked'`,
      `(event, agent) values ('agent_created', 'ghost')`,
    ),
    ...listPeopleTargets(world, ns),
    settings: on('settings', 'true', 'sends_broadcast = false', '(is_only) values (true)'),
  }
}

function listPeopleTargets(world: World, ns: string): Record<string, Target> {
  const { mia, olga, stranger, inviteId, messageId, draftId } = world
  return {
    people: on('people', `id = '${mia.personId}'`, `name = 'x'`, `(name) values ('new')`),
    login_links: on(
      'login_links',
      `person_uuid = '${mia.personId}'`,
      'used_at = now()',
      `(hash, person_uuid) values (decode(repeat('00', 32), 'hex'), '${mia.personId}')`,
    ),
    sessions: on(
      'sessions',
      `person_uuid = '${mia.personId}'`,
      'ended_at = now()',
      `(hash, person_uuid, client) values (decode(repeat('00', 32), 'hex'), '${mia.personId}', 'x')`,
    ),
    members: on(
      'members',
      `person_uuid = '${mia.personId}'`,
      `role = 'admin'`,
      `(namespace_uuid, person_uuid, role) values (${ns}, '${stranger.personId}', 'member')`,
    ),
    message_words: on(
      'message_words',
      `message_id = '${messageId}'`,
      `words = ''`,
      `(message_id, namespace_uuid, sent_at, words) values ('${draftId}', ${ns}, now(), '')`,
    ),
    invites: on(
      'invites',
      `id = '${inviteId}'`,
      'revoked_at = now()',
      `(id, hash, namespace_uuid, role, created_by)
        values (gen_random_uuid(), decode(repeat('00', 32), 'hex'), ${ns}, 'owner', '${olga.personId}')`,
    ),
  }
}

function on(table: string, where: string, set: string, values: string): Target {
  return {
    select: `select from patchcord.${table} where ${where}`,
    insert: `insert into patchcord.${table} ${values}`,
    update: `update patchcord.${table} set ${set} where ${where}`,
    delete: `delete from patchcord.${table} where ${where}`,
  }
}
