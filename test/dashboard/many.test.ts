import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'

const AGENTS = 1_000
const TOKENS = 10_000
const ROUNDS = 7
/** On an idle machine each takes a tenth of it; this one may be busy with other tests. */
const MEDIAN_MS_MAX = 1_000

describe(`with ${AGENTS} agents and ${TOKENS} tokens`, () => {
  let stage: Stage
  before(async () => {
    stage = await startStage()
    const { admin } = stage.database
    await admin`
      insert into patchcord.agents (namespace_uuid, name)
      select id, 'agent-' || to_char(i, 'FM0000') from patchcord.namespaces, generate_series(1, ${AGENTS}) i
      where name = 'acme'`
    await admin`
      insert into patchcord.tokens (namespace_uuid, agent_uuid, hash, label, created_at, expires_at, revoked_at, last_used_at)
      select a.namespace_uuid, a.id, sha256(convert_to(a.name || ' ' || i, 'utf8')), 'label ' || i,
        now() - make_interval(mins => i), now() + make_interval(days => i),
        case when i % 3 = 0 then now() end, now() - make_interval(secs => i * 60)
      from patchcord.agents a, generate_series(1, ${TOKENS / AGENTS}) i where a.name like 'agent-%'`
    await admin`analyze patchcord.agents, patchcord.tokens, patchcord.security_log`
  })
  after(() => stage?.close())

  const paths = [
    '/n/acme/agents',
    '/n/acme/agents?fragment=list',
    '/n/acme/agents?q=999',
    '/n/acme/agents?after=agent-0900',
    '/n/acme/agents/agent-0500',
    '/n/acme/tokens',
    '/n/acme/tokens?state=all',
    '/n/acme/tokens?state=ended',
    '/n/acme/tokens?agent=agent-0500&state=all',
    '/n/acme/tokens?q=label+7',
    '/n/acme/tokens?q=nothing+like+it&state=all',
    '/n/acme/members',
    '/n/acme/settings',
    '/n/acme/audit',
  ]
  for (const path of paths) {
    test(`${path} is a page of bounded length, and quick`, async (context) => {
      const browser = stage.browse(stage.owner)
      const times: number[] = []
      for (let round = 0; round < ROUNDS; round++) {
        const start = performance.now()
        const page = await browser.get(path)
        times.push(performance.now() - start)
        assert.equal(page.status, 200)
        assert.ok((page.html.match(/<(?:tr id="row|li id="event)-/g)?.length ?? 0) <= 100)
        assert.ok(page.html.length < 300_000, `${page.html.length} characters`)
      }
      const median = times.sort((a, b) => a - b)[Math.floor(ROUNDS / 2)] ?? 0
      context.diagnostic(`median ${median.toFixed(1)} ms`)
      assert.ok(median < MEDIAN_MS_MAX, `${median} ms`)
    })
  }
})
