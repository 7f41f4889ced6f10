import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

const ROLES = ['patchcord_api', 'patchcord_agent', 'patchcord_person', 'patchcord_ticket']
const OUTSIDERS = ['public', 'anon', 'authenticated', 'service_role']

/** Every function of the schema, by the roles that may execute it; a new one must be put where it belongs. */
const FUNCTIONS: Record<string, string[]> = {
  'patchcord_agent patchcord_person patchcord_ticket': ['claim(text)', 'claim_namespace()'],
  'patchcord_agent patchcord_person': ['is_name(text)', 'reach_of(uuid[])', 'uuid_v7()'],
  'patchcord_agent patchcord_ticket': ['claim_agent()'],
  patchcord_person: [
    'accept_invite(text)',
    'claim_is_admin()',
    'claim_is_owner()',
    'claim_person()',
    'find_messages(jsonb,timestamp with time zone,uuid,integer)',
    'found_namespace(text,integer)',
    'free_agent_name(text)',
    'free_namespace_name(text)',
    'measure_deliveries(integer)',
    'my_namespaces()',
  ],
  patchcord_ticket: ['claim_is_live()'],
  patchcord_api: [
    'assume(patchcord.entrance)',
    'claims_of(patchcord.entrance)',
    'assume_person(jsonb)',
    'check_filters(text,jsonb)',
    'end_lease(text,text)',
    'enter(text,double precision,jsonb)',
    'enter_agent(text)',
    'enter_member(text,text)',
    'enter_person(text)',
    'find_invite(text)',
    'find_login_link(text)',
    'index_words(integer)',
    'join_by_invite(text,text,text,text,text)',
    'purge_deleted(integer)',
    'resolve_member(text,text)',
    'resolve_session(text)',
    'sign_in(text,text,text,text)',
    'sign_in_with_subject(text,text,text,boolean,text,text,text,text)',
    'fetch_inbox(text,uuid[])',
    'fetch_next(text,text,text,uuid[])',
    'note_refusal(text,jsonb)',
    'peek_inbox(text,text,integer)',
    'purge(integer,integer)',
    'read_back(double precision,jsonb)',
    'read_changes(uuid[],double precision,text[],integer)',
    'recall_messages(text,uuid,text,text,integer,integer,integer,integer)',
    'recent_revocations(double precision,uuid[])',
    'recent_wakes(uuid,double precision,integer)',
    'renew_leases(jsonb,double precision)',
    'reply_message(text,uuid,text,text,text,text,jsonb)',
    'report_presence(text,text,text,text,text,boolean)',
    'resolve_token(text)',
    'resolve_tokens(text[])',
    'schema_version()',
    'prepare_batch(patchcord.batch_row[],jsonb)',
    'send_batch(jsonb,jsonb)',
    'send_message(text,text[],text[],text,text,text,text,text,text,jsonb,double precision)',
    'settle_messages(text,uuid[],text)',
    'unsend_message(text,uuid)',
  ],
  patchcord_agent: [
    'about_tokens(text)',
    'agents_near()',
    'count_inbox()',
    'count_turns(uuid[],jsonb)',
    'find_recalled(uuid,text,text,integer,integer)',
    'find_recipients(text[],text[])',
    'insert_message(uuid,timestamp with time zone,uuid[],text[],timestamp with time zone[],text,uuid,text,text,text,uuid,timestamp with time zone)',
    'tell_recipient(text,boolean,text,timestamp with time zone,timestamp with time zone,timestamp with time zone)',
    'tell_wake(uuid,uuid,text,text,text,text)',
    'full_inboxes(uuid[],integer)',
    'lock_pairs(uuid[])',
    'move_deliveries(uuid[],text[],text)',
    'open_thread(text,uuid[])',
    'recipients_now(uuid)',
    'remember(text,jsonb)',
    'replay(text,text)',
    'reply_as_me(uuid,text,text,jsonb)',
    'roster()',
    'send_as_me(text[],text[],text,text,text,text,jsonb,double precision)',
    'sender_name(patchcord.agent_messages,text)',
    'settle(uuid[],text)',
    'take_answer_back(uuid)',
    'shown(patchcord.agent_messages,text,text,timestamp with time zone)',
    'store_message(uuid[],text,uuid,text,text,text,uuid,jsonb,boolean,double precision)',
    'take_new(uuid[],text,boolean,integer,integer,uuid[])',
    'take_notices(double precision)',
    'unsettled_lines(text,timestamp with time zone,uuid[])',
  ],
  '': [
    'candidates_of(jsonb)',
    'count_turns_of(uuid[],uuid[],jsonb)',
    'enter_many(uuid[],jsonb)',
    'reaches(uuid[])',
    'has_namesake(uuid,uuid,text)',
    'check_member()',
    'condition_of(jsonb)',
    'find_words(uuid,tsquery,timestamp with time zone,uuid,integer)',
    'namespace_word(uuid)',
    'to_words(text)',
    'without_marks(text)',
    'without_order(tsquery)',
    'adopt_namespaces(uuid)',
    'begin_session(uuid,text,text,text)',
    'broadcast_wake(patchcord.agent_messages)',
    'free_name(text,uuid)',
    'log_agent(text,patchcord.agents,text)',
    'on_invite_changed()',
    'on_login_link_created()',
    'on_member_changed()',
    'on_namespace_deleted()',
    'on_person_changed()',
    'purge_deleted_agents(uuid,uuid[],integer)',
    'purge_people(integer)',
    'use_invite(text,uuid)',
    'count_refusal(uuid,jsonb)',
    'expire_due()',
    'is_pair_fresh(patchcord.pairs,interval)',
    'list_names(text[])',
    'log_token(text,uuid,text)',
    'on_agent_changed()',
    'on_agent_named()',
    'on_message()',
    'on_namespace_changed()',
    'on_namespace_named()',
    'on_rename()',
    'on_session_ended()',
    'on_token_changed()',
    'refill(double precision,timestamp with time zone,double precision,double precision)',
    'release_held()',
    'paused_agents()',
    'on_namespace_resumed()',
    'with_new(uuid[],integer)',
  ],
}

/** What runs with its owner's rights. */
const DEFINERS = [
  'accept_invite',
  'broadcast_wake',
  'check_filters',
  'count_turns',
  'enter',
  'expire_due',
  'find_invite',
  'find_login_link',
  'find_messages',
  'found_namespace',
  'free_agent_name',
  'free_namespace_name',
  'full_inboxes',
  'index_words',
  'join_by_invite',
  'lock_pairs',
  'measure_deliveries',
  'my_namespaces',
  'note_refusal',
  'on_agent_changed',
  'on_agent_named',
  'on_invite_changed',
  'on_login_link_created',
  'on_member_changed',
  'on_message',
  'on_namespace_changed',
  'on_namespace_deleted',
  'on_namespace_named',
  'on_namespace_resumed',
  'on_person_changed',
  'on_session_ended',
  'on_token_changed',
  'prepare_batch',
  'purge',
  'purge_deleted',
  'reach_of',
  'read_back',
  'read_changes',
  'recent_revocations',
  'recent_wakes',
  'release_held',
  'renew_leases',
  'resolve_member',
  'resolve_session',
  'schema_version',
  'sign_in',
  'sign_in_with_subject',
]

/** Table, or table and column, then the role, then what it may do. */
const TABLE_GRANTS = [
  'agent_messages patchcord_agent INSERT SELECT',
  'agent_messages patchcord_person SELECT',
  'agent_messages patchcord_ticket SELECT',
  'agents patchcord_agent SELECT',
  'agents patchcord_person SELECT',
  'agents.deleted_at patchcord_person UPDATE',
  'agents.name patchcord_person INSERT UPDATE',
  'agents.namespace_uuid patchcord_person INSERT',
  'deliveries patchcord_agent INSERT SELECT',
  'deliveries patchcord_person SELECT',
  'deliveries.answered_at patchcord_agent UPDATE',
  'deliveries.deferred_at patchcord_agent UPDATE',
  'deliveries.done_at patchcord_agent UPDATE',
  'deliveries.fetched_at patchcord_agent UPDATE',
  'deliveries.notified_at patchcord_agent UPDATE',
  'deliveries.settled_at patchcord_agent UPDATE',
  'deliveries.state patchcord_agent UPDATE',
  'idempotency_keys patchcord_agent DELETE INSERT SELECT UPDATE',
  'invites.created_at patchcord_person SELECT',
  'invites.created_by patchcord_person INSERT SELECT',
  'invites.expires_at patchcord_person SELECT',
  'invites.hash patchcord_person INSERT',
  'invites.id patchcord_person INSERT SELECT',
  'invites.namespace_uuid patchcord_person INSERT SELECT',
  'invites.revoked_at patchcord_person SELECT UPDATE',
  'invites.role patchcord_person INSERT SELECT',
  'invites.used_at patchcord_person SELECT',
  'invites.used_by patchcord_person SELECT',
  'leases patchcord_agent DELETE INSERT SELECT UPDATE',
  'leases patchcord_person SELECT',
  'login_links.created_at patchcord_person SELECT',
  'login_links.expires_at patchcord_person SELECT',
  'login_links.hash patchcord_person INSERT',
  'login_links.id patchcord_person SELECT',
  'login_links.person_uuid patchcord_person INSERT SELECT',
  'login_links.used_at patchcord_person SELECT',
  'members patchcord_person DELETE SELECT',
  'members.role patchcord_person UPDATE',
  'message_bodies patchcord_agent INSERT SELECT',
  'message_bodies patchcord_person SELECT',
  'namespaces patchcord_agent SELECT',
  'namespaces patchcord_person SELECT',
  'namespaces.deleted_at patchcord_person UPDATE',
  'namespaces.name patchcord_person UPDATE',
  'namespaces.paused_at patchcord_person UPDATE',
  'people.created_at patchcord_person SELECT',
  'people.email patchcord_person SELECT',
  'people.id patchcord_person SELECT',
  'people.name patchcord_person SELECT UPDATE',
  'presence patchcord_agent INSERT SELECT UPDATE',
  'presence patchcord_person SELECT',
  'security_log patchcord_person SELECT',
  'sessions.client patchcord_person SELECT',
  'sessions.created_at patchcord_person SELECT',
  'sessions.ended_at patchcord_person SELECT UPDATE',
  'sessions.expires_at patchcord_person SELECT',
  'sessions.id patchcord_person SELECT',
  'sessions.last_seen_at patchcord_person SELECT',
  'sessions.person_uuid patchcord_person SELECT',
  'threads patchcord_agent INSERT SELECT',
  'threads patchcord_person SELECT',
  'threads.last_message_at patchcord_agent UPDATE',
  'threads.resolved_at patchcord_agent UPDATE',
  'threads.resolved_by_uuid patchcord_agent UPDATE',
  'tokens.agent_uuid patchcord_person INSERT SELECT',
  'tokens.banned_until patchcord_person SELECT',
  'tokens.created_at patchcord_person SELECT',
  'tokens.expires_at patchcord_person INSERT SELECT UPDATE',
  'tokens.hash patchcord_person INSERT',
  'tokens.id patchcord_person INSERT SELECT',
  'tokens.label patchcord_person INSERT SELECT',
  'tokens.last_used_at patchcord_person SELECT',
  'tokens.namespace_uuid patchcord_person INSERT SELECT',
  'tokens.revoked_at patchcord_person SELECT UPDATE',
  'tokens.rotated_from patchcord_person INSERT SELECT',
]

describe('grants', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  test('each function of the schema is executable by exactly the roles that it is listed under', async () => {
    const rows = await database.admin`
      select p.oid::regprocedure::text as name,
        array(
          select role from unnest(${[...OUTSIDERS, ...ROLES]}::text[]) role
          where has_function_privilege(role, p.oid, 'execute') order by role
        ) as roles
      from pg_catalog.pg_proc p where p.pronamespace = 'patchcord'::regnamespace`
    const listed = Object.entries(FUNCTIONS).flatMap(([roles, names]) => names.map((name) => `${name}: ${roles}`))
    const found = rows.map(({ name, roles }) => `${name.replace(/^patchcord\./, '')}: ${sortRoles(roles)}`)
    assert.deepEqual(found.sort(), listed.sort())
  })

  test('every definer is listed, is owned by postgres, and looks for types in pg_catalog before pg_temp', async () => {
    const rows = await database.admin`
      select p.proname as name, p.proconfig as settings, p.proowner::regrole::text as owner, p.prosecdef as definer
      from pg_catalog.pg_proc p where p.pronamespace = 'patchcord'::regnamespace order by p.proname`
    const definers = rows.filter((row) => row.definer)
    assert.deepEqual(
      definers.map((row) => row.name),
      DEFINERS,
    )
    // An empty path is not enough: types are then looked for in pg_temp first, where the caller can put its own "uuid".
    const loose = rows.filter(({ settings, definer }) =>
      settings ? !settings.includes('search_path=pg_catalog, pg_temp') : definer,
    )
    assert.deepEqual(
      loose.map((row) => row.name),
      [],
    )
    assert.deepEqual([...new Set(rows.map((row) => row.owner))], ['postgres'])
  })

  test('grants on tables and columns are exactly these', async () => {
    const rows = await database.admin`
      select g.name || ' ' || case g.grantee when 0 then 'public' else g.grantee::regrole::text end || ' '
        || string_agg(g.privilege_type, ' ' order by g.privilege_type) as line
      from (
        select c.relname::text as name, c.relowner as owner, a.grantee, a.privilege_type
        from pg_catalog.pg_class c, aclexplode(c.relacl) a where c.relnamespace = 'patchcord'::regnamespace
        union all
        select c.relname || '.' || t.attname, c.relowner, a.grantee, a.privilege_type
        from pg_catalog.pg_class c join pg_catalog.pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
        where c.relnamespace = 'patchcord'::regnamespace
      ) g
      where g.grantee <> g.owner
      group by g.name, g.grantee`
    assert.deepEqual(rows.map((row) => row.line).sort(), [...TABLE_GRANTS].sort())
  })

  test('our roles may use the schema, nobody else may, and nobody but its owner creates in it', async () => {
    const everyone = [...OUTSIDERS, ...ROLES, 'authenticator', 'supabase_realtime_admin']
    const holding = async (privilege: string) => {
      const rows = await database.admin`
        select role from unnest(${everyone}::text[]) role where has_schema_privilege(role, 'patchcord', ${privilege})`
      return sortRoles(rows.map((row) => row.role))
    }
    assert.equal(await holding('usage'), sortRoles(ROLES))
    assert.equal(await holding('create'), '')
    const [open] = await database.admin`
      select count(*)::int as count from pg_catalog.pg_namespace n
      where has_schema_privilege('patchcord_api', n.oid, 'create') and n.nspname !~ '^pg_(toast_)?temp_'`
    assert.equal(open?.count, 0)
  })

  test('no role of ours is superuser, bypasses row security, makes roles or databases, or owns anything', async () => {
    const rows = await database.admin`
      select r.rolname as name, r.rolcanlogin as login, r.rolsuper or r.rolbypassrls or r.rolcreaterole or r.rolcreatedb
          or r.rolreplication as mighty,
        (
          select count(*)::int from pg_catalog.pg_shdepend d
          where d.refclassid = 'pg_authid'::regclass and d.refobjid = r.oid and d.deptype = 'o'
            and d.dbid in (0, (select oid from pg_catalog.pg_database where datname = current_database()))
        ) as owned
      from pg_catalog.pg_roles r where r.rolname like 'patchcord%' order by r.rolname`
    assert.deepEqual(
      rows.map((row) => ({ ...row })),
      [...ROLES].sort().map((name) => ({ name, login: name === 'patchcord_api', mighty: false, owned: 0 })),
    )
  })

  test('the API is a member of the roles of agents and people only, a ticket of authenticated only, and only Realtime may become one', async () => {
    const rows = await database.admin`
      select m.member::regrole::text || ' in ' || m.roleid::regrole::text || case when m.admin_option then ' (admin)' else '' end
        as line
      from pg_catalog.pg_auth_members m
      where m.member::regrole::text = any (${ROLES}) or m.roleid::regrole::text = any (${ROLES})`
    const lines = rows.map((row) => row.line as string).filter((line) => !line.startsWith('postgres in '))
    assert.deepEqual(lines.sort(), [
      'patchcord_api in patchcord_agent',
      'patchcord_api in patchcord_person',
      'patchcord_ticket in authenticated',
      'supabase_realtime_admin in patchcord_ticket',
    ])
  })

  test('the connection of the API can become the role of agents or of people, and no other', async () => {
    const outcomes: Record<string, string> = {}
    const roles = ['postgres', 'supabase_admin', 'service_role', ...OUTSIDERS, ...ROLES, 'supabase_realtime_admin']
    for (const role of roles.filter((name) => name !== 'public')) {
      outcomes[role] = await database.api
        .begin(async (sql) => {
          await sql`set local role ${sql(role)}`
          return 'allowed'
        })
        .catch((error: { code?: string }) => error.code ?? 'unknown')
    }
    const allowed = Object.keys(outcomes).filter((role) => outcomes[role] === 'allowed')
    assert.deepEqual(allowed.sort(), ['patchcord_agent', 'patchcord_api', 'patchcord_person'])
    const refusals = Object.values(outcomes).filter((outcome) => outcome !== 'allowed')
    assert.deepEqual([...new Set(refusals)], ['42501'])
  })
})

function sortRoles(roles: string[]): string {
  return [...roles].sort().join(' ')
}
