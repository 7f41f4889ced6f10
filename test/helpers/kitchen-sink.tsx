import type { FastifyRequest } from 'fastify'
import {
  Button,
  ButtonLink,
  Card,
  Choice,
  Confirm,
  Copy,
  Empty,
  Facts,
  Field,
  Form,
  Layout,
  Live,
  Notice,
  Pager,
  Reach,
  type Reachable,
  Secret,
  Section,
  State,
  Table,
  Text,
  Time,
} from '../../server/dashboard/components/index.ts'

const SNIPPET = `{
  "mcpServers": {
    "patchcord": { "type": "http", "url": "http://127.0.0.1:8787/mcp", "headers": { "Authorization": "Bearer \${PATCHCORD_TOKEN}" } }
  }
}`
export const HOSTILE = `<script>alert('1')</script> & "quotes" \u202Eevil\u202C zero\u200Bwidth`

/** Every component of the dashboard once, in its states: for the tests, and for eyes. */
export function KitchenSink({ request }: { request: Pick<FastifyRequest, 'page'> }) {
  const { page } = request
  return (
    <Layout
      request={request}
      title="Kitchen sink"
      namespace={{ namespace: 'acme', pausedAt: '2026-11-30T00:00:00Z' }}
      tab="agents"
      action={<ButtonLink href="/sink">Secondary</ButtonLink>}
    >
      <Notices />
      <Section title="Agents" lead="States in words, with their evidence.">
        <Live name="agents" page={page} events="/n/acme/events">
          <Agents page={page} />
        </Live>
        <Pager next="/sink?after=x" first="/sink" />
      </Section>
      <Forms csrf={page.csrf} />
      <Section title="Secrets and snippets">
        <Secret
          label="The token of backend: copy it now, it is not shown again"
          value={`pc_${'0123456789'.repeat(5)}`}
        />
        <Copy text="claude mcp add --scope project --transport http patchcord http://127.0.0.1:8787/mcp" />
        <Copy text={SNIPPET} block />
      </Section>
      <Section title="Text">
        <Card>
          <Text value={HOSTILE} />
        </Card>
        <Card>
          <Text value={`A long one.\n${'The quick brown fox jumps over the lazy dog. '.repeat(40)}`} />
        </Card>
        <Facts
          facts={[
            ['Created', <Time at="2026-01-02T03:04:05Z" now={page.now} />],
            ['Messages', '1,204'],
            ['Median to notified', '18 ms'],
          ]}
        />
      </Section>
      <Empty title="No messages yet">
        <p>When an agent sends its first message, it appears here.</p>
        <ButtonLink href="/sink" kind="primary">
          Connect an agent
        </ButtonLink>
      </Empty>
    </Layout>
  )
}

function Notices() {
  return (
    <div>
      <Notice>
        <p>A fact that is good to know.</p>
      </Notice>
      <Notice kind="good" title="Saved">
        <p>The name is new everywhere.</p>
      </Notice>
      <Notice kind="bad" title="That did not work">
        <p>
          The name is taken. <a href="/sink">acme-2</a> is free.
        </p>
      </Notice>
    </div>
  )
}

function ago(now: Date, seconds: number): string {
  return new Date(now.getTime() - seconds * 1000).toISOString()
}

function Agents({ page }: { page: FastifyRequest['page'] }) {
  const { now, csrf } = page
  const agents: (Reachable & { agent: string; count: number })[] = [
    {
      agent: 'backend',
      count: 0,
      ...{ reach: 'wakeable', state: 'busy', client: 'Claude Code', machine: 'lap-3' },
      lease_renewed_at: ago(now, 12),
      last_seen_at: ago(now, 3),
    },
    {
      agent: 'frontend-with-a-rather-long-name-of-40-ch',
      count: 3,
      ...{ reach: 'online', state: 'idle', client: 'Codex', machine: null },
      lease_renewed_at: null,
      last_seen_at: ago(now, 400),
    },
    {
      agent: 'review',
      count: 1204,
      ...{ reach: 'offline', state: null, client: null, machine: null },
      lease_renewed_at: null,
      last_seen_at: ago(now, 300_000),
    },
    {
      agent: 'new',
      count: 0,
      ...{ reach: 'offline', state: null, client: null, machine: null },
      lease_renewed_at: null,
      last_seen_at: null,
    },
  ]
  const rows = agents.map((agent) => ({
    key: agent.agent,
    cells: [
      <a href={`/n/acme/agents/${agent.agent}`}>{agent.agent}</a>,
      <Reach agent={agent} now={now} />,
      agent.count.toLocaleString('en'),
      <Confirm
        summary="Delete"
        button="Delete it now"
        label={`Delete ${agent.agent}`}
        action={`/n/acme/agents/${agent.agent}/delete`}
        csrf={csrf}
      >
        <p>{agent.agent} is disconnected now, and its tokens end. Its messages stay. This cannot be undone.</p>
      </Confirm>,
    ],
  }))
  const columns = [
    { label: 'Agent' },
    { label: 'Reach' },
    { label: 'New', isNumber: true },
    { label: 'Action', isQuiet: true },
  ]
  return <Table caption="Agents" columns={columns} rows={rows} />
}

function Forms({ csrf }: { csrf: string }) {
  return (
    <Section title="Forms" aside={<State kind="warn">2 problems</State>}>
      <Form action="/sink" csrf={csrf} layout="row">
        <Field name="name" label="Name" hint="a-z, 0-9 and hyphen" placeholder="backend" mono required />
        <Button kind="primary">Add agent</Button>
      </Form>
      <Form action="/sink" csrf={csrf}>
        <Field name="label" label="Label" value="lap 3" error="A label has up to 80 characters." />
        <Choice
          name="expires"
          label="Expires"
          value="90"
          options={[
            { value: '30', label: 'in 30 days' },
            { value: '90', label: 'in 90 days' },
          ]}
        />
        <div class="actions">
          <Button kind="primary">Create token</Button>
          <Button>Cancel</Button>
          <Button kind="danger">Delete</Button>
          <Button kind="quiet">Quiet</Button>
        </div>
      </Form>
    </Section>
  )
}
