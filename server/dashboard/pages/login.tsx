import type { FastifyRequest } from 'fastify'
import type { Supabase } from '../../config.ts'
import { Button, Copy, Form, Layout, Notice, Text, Time } from '../components/index.ts'

const COMMAND = 'patchcord login-link'

/** How to get in: by a link that the operator makes, or through Supabase Auth. */
export function Login(props: { request: FastifyRequest; supabase: Supabase | null; needsInvite: boolean }) {
  const { request, supabase } = props
  return (
    <Layout request={request} title="Sign in" width="narrow" scripts={supabase ? ['supabase.js', 'login.js'] : []}>
      {supabase ? (
        <SupabaseLogin request={request} supabase={supabase} needsInvite={props.needsInvite} />
      ) : (
        <EmbeddedLogin />
      )}
    </Layout>
  )
}

function EmbeddedLogin() {
  return (
    <>
      <div class="panel">
        <p>You sign in with a link. On the machine where Patchcord runs, type</p>
        <Copy text={COMMAND} />
        <p>and open the link that it prints. It works once, for 15 minutes.</p>
      </div>
      <p class="soft below">
        Invited by somebody? Open the link that they sent you. Signed in on another device? Make a link there, under
        Account.
      </p>
    </>
  )
}

/** public/login.js fills in the providers that the project has, and does the rest. */
function SupabaseLogin(props: { request: FastifyRequest; supabase: Supabase; needsInvite: boolean }) {
  const { supabase, request } = props
  return (
    <div
      id="supabase"
      data-url={supabase.url.origin}
      data-key={supabase.publishableKey}
      data-back={`${request.page.origin}/login`}
    >
      <noscript>
        <Notice kind="warn" title="This sign-in needs JavaScript">
          <p>
            Turn it on for this page only, or ask the operator for a link (<code>{COMMAND}</code>): that works without.
          </p>
        </Notice>
      </noscript>
      <div class="notice bad" role="alert" data-problem hidden></div>
      <div class="panel" data-ways hidden>
        <div class="providers" data-providers></div>
        <p class="or" data-or hidden>
          or
        </p>
        <form class="form stack" data-email hidden>
          <div class="field">
            <label for="email">E-mail address</label>
            <input id="email" name="email" type="email" autocomplete="email" required />
          </div>
          <button type="submit" class="button primary wide">
            Send me a link
          </button>
        </form>
        <p class="soft" role="status" data-sent hidden></p>
      </div>
      <Form action="/login/supabase" csrf={request.page.csrf} id="finish" fields={{ access_token: '' }}></Form>
      {props.needsInvite && <p class="soft below">New here? You need an invite: open the link that you were sent.</p>}
    </div>
  )
}

/** Looking uses nothing up; the button does. */
export function ConfirmLogin(props: {
  request: FastifyRequest
  code: string
  link: { person: string; expires_at: string }
}) {
  const { request, link } = props
  const { page } = request
  return (
    <Layout request={request} title="Sign in" width="narrow">
      <div class="panel">
        <p class="who">
          You will be signed in as <Text value={link.person} inline /> on this device.
        </p>
        {page.isSignedIn && (
          <p>
            You are signed in as <Text value={page.me.name} inline /> now; that session ends.
          </p>
        )}
        <p class="soft">
          The link works once, and ends <Time at={link.expires_at} now={page.now} />. Sign in only if you, or somebody
          whom you trust, made it.
        </p>
        <Form action={`/login/${props.code}`} csrf={page.csrf}>
          <Button kind="primary">Sign in</Button>
        </Form>
      </div>
    </Layout>
  )
}

/** One answer to a link that is unknown, used or expired: a guess learns nothing from it. */
export function DeadLogin({ request }: { request: FastifyRequest }) {
  return (
    <Layout request={request} title="This link does not work" width="narrow">
      <div class="panel">
        <p>A sign-in link works once, within 15 minutes of its making, and only when it is complete.</p>
        <p>For a new one, on the machine where Patchcord runs:</p>
        <Copy text={COMMAND} />
        <p class="soft">Or on a device where you are signed in: Account, then “Sign in on another device”.</p>
      </div>
    </Layout>
  )
}
