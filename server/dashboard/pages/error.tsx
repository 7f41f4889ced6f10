import type { FastifyRequest } from 'fastify'
import type { ErrorCode, PatchcordError } from '../../errors.ts'
import { ButtonLink, Layout } from '../components/index.ts'

const TITLES: Partial<Record<ErrorCode, string>> = {
  not_found: 'Not found',
  forbidden: 'Not allowed',
  invalid: 'That did not work',
  conflict: 'That did not work',
  too_large: 'Too large',
  rate_limited: 'Too many tries',
  misdirected: 'Wrong host name',
  unsupported_media_type: 'That did not work',
  unavailable: 'Not available just now',
  internal: 'Something went wrong',
}

const NEXT: Partial<Record<ErrorCode, string>> = {
  not_found: 'It may have been deleted, or you may not be a member of the namespace that it belongs to.',
  unavailable: 'Reload the page in a few seconds.',
  internal:
    'Nothing more is known here; the server’s log says what happened. Try again, and tell the operator if it stays so.',
}

/** One error, and what to do next. */
export function ErrorPage(props: { request: FastifyRequest; error: PatchcordError }) {
  const { request, error } = props
  if (error.details?.cookies === 'lost') return <LostCookies request={request} />
  const title = TITLES[error.code] ?? 'That did not work'
  return (
    <Layout request={request} title={title} width="narrow">
      <div class="panel">
        {error.code !== 'internal' && <p>{error.message}</p>}
        {(error.hint ?? NEXT[error.code]) && <p class="soft">{error.hint ?? NEXT[error.code]}</p>}
        {error.retryAfterSeconds !== undefined && <p class="soft">Try again in {error.retryAfterSeconds} s.</p>}
        <div class="actions">
          <ButtonLink href="/">{request.page.isSignedIn ? 'To your namespaces' : 'To the sign-in'}</ButtonLink>
        </div>
      </div>
      <p class="code-note">
        {error.status} · {error.code}
      </p>
    </Layout>
  )
}

/** A browser keeps `__Host-` cookies only over https, and on the machine itself. */
function LostCookies({ request }: { request: FastifyRequest }) {
  const isHttps = request.page.origin.startsWith('https:')
  return (
    <Layout request={request} title="Your browser kept no cookie" width="narrow">
      <div class="panel">
        <p>Signing in needs a cookie, and it did not come back, so nothing was changed.</p>
        {isHttps ? (
          <p class="soft">Allow cookies of this site, open the page again, and send the form once more.</p>
        ) : (
          <>
            <p>
              Browsers keep it only over https, or when you open <code>http://localhost</code> on the machine where
              Patchcord runs. Safari may keep it over https only.
            </p>
            <p class="soft">
              From another machine: put https before the server and set <code>PATCHCORD_PUBLIC_URL</code> to its
              address. If this is https or localhost already, allow cookies of this site and open the page again.
            </p>
          </>
        )}
      </div>
    </Layout>
  )
}
