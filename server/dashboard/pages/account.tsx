import type { FastifyRequest } from 'fastify'
import type { SessionLine } from '../../domain/people.ts'
import { Button, Confirm, Copy, Field, Form, Layout, Notice, Section, State, Table, Time } from '../components/index.ts'

export interface AccountProps {
  request: FastifyRequest
  sessions: SessionLine[]
  /** A link for another device, just made. */
  link?: { url: string; expires_at: string }
  problem?: { name: string; message: string }
}

/** Who I am here, and where I am signed in. */
export function Account(props: AccountProps) {
  const { request, problem } = props
  const { page } = request
  return (
    <Layout request={request} title="Account" action={<SignOut csrf={page.csrf} />}>
      <Section title="Name" lead="Other members see it beside what you do.">
        <Form action="/account/name" csrf={page.csrf} layout="row">
          <Field
            name="name"
            label="Your name"
            hideLabel
            value={problem?.name ?? page.me.name}
            error={problem?.message}
            required
            autocomplete="name"
          />
          <Button>Save</Button>
        </Form>
        {page.me.email && <p class="soft">E-mail address: {page.me.email}</p>}
      </Section>
      <Section title="Sign in on another device">
        {props.link ? <NewLink link={props.link} now={page.now} /> : <MakeLink csrf={page.csrf} />}
      </Section>
      <Section title="Where you are signed in" lead="A session ends after 30 days, or 7 days without use.">
        <Sessions {...props} />
      </Section>
    </Layout>
  )
}

function SignOut({ csrf }: { csrf: string }) {
  return (
    <Form action="/logout" csrf={csrf} layout="inline">
      <Button>Sign out</Button>
    </Form>
  )
}

function MakeLink({ csrf }: { csrf: string }) {
  return (
    <Form action="/account/login-link" csrf={csrf}>
      <p>Makes a link that signs in as you, once, within 15 minutes. Open it on the other device.</p>
      <div class="actions">
        <Button>Make a link</Button>
      </div>
    </Form>
  )
}

function NewLink({ link, now }: { link: { url: string; expires_at: string }; now: Date }) {
  return (
    <Notice kind="good" title="Open this on the other device">
      <Copy text={link.url} />
      <p>
        It signs in as you, once, and ends <Time at={link.expires_at} now={now} />. It is shown only now: whoever has it
        is you.
      </p>
    </Notice>
  )
}

function Sessions({ request, sessions }: AccountProps) {
  const { csrf, now } = request.page
  const rows = sessions.map((session) => ({
    key: session.id,
    cells: [
      session.client,
      session.is_this ? <State kind="good">this browser</State> : <Time at={session.last_seen_at} now={now} />,
      <Time at={session.created_at} now={now} />,
      session.is_this ? null : (
        <Confirm
          summary="Sign out"
          button="Sign it out now"
          label={`Sign out ${session.client}`}
          action={`/account/sessions/${session.id}/end`}
          csrf={csrf}
        >
          <p>{session.client} is signed out at its next click. Agents and their tokens go on.</p>
        </Confirm>
      ),
    ],
  }))
  const columns = [
    { label: 'Browser' },
    { label: 'Last seen' },
    { label: 'Signed in' },
    { label: 'Action', isQuiet: true },
  ]
  return <Table caption="Your sessions" columns={columns} rows={rows} />
}
