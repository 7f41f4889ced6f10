import { createHash } from 'node:crypto'
import cookie from '@fastify/cookie'
import formbody from '@fastify/formbody'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { getMe } from '../domain/people.ts'
import { PatchcordError } from '../errors.ts'
import { FOR_EVER, serveAssets } from './assets.ts'
import { describePause } from './components/index.ts'
import { answerError, wantsPage } from './errors.tsx'
import { securityHeaders } from './headers.ts'
import { type DashboardDeps, NOBODY, type Page, type PageContext } from './page.ts'
import { toLocalPath, withoutFragment } from './paths.ts'
import { accountRoutes } from './routes/account.tsx'
import { activityRoutes } from './routes/activity.tsx'
import { agentRoutes } from './routes/agents.tsx'
import { auditRoutes } from './routes/audit.tsx'
import { eventRoutes } from './routes/events.ts'
import { formPageRoutes } from './routes/form-pages.ts'
import { homeRoutes } from './routes/home.tsx'
import { inviteRoutes } from './routes/invite.tsx'
import { loginRoutes } from './routes/login.tsx'
import { memberRoutes } from './routes/members.tsx'
import { messageRoutes } from './routes/messages.tsx'
import { settingsRoutes } from './routes/settings.tsx'
import { tokenRoutes } from './routes/tokens.tsx'
import {
  clearFlash,
  deriveCsrf,
  ensureFormSecret,
  hashSecret,
  isCsrf,
  readFlash,
  readFormSecret,
  readSession,
  readTheme,
  writeFlash,
} from './session.ts'

/** Forms hold names and choices; nothing here is large. */
const FORM_BYTES_MAX = 64 * 1024

/** The pages for people: their session, forms and headers, and every route. */
export async function dashboard(app: FastifyInstance, deps: DashboardDeps): Promise<void> {
  app.removeAllContentTypeParsers()
  await app.register(cookie)
  await app.register(formbody, { bodyLimit: FORM_BYTES_MAX })
  decorate(app)
  app.addHook('onRequest', async (request, reply) => prepare(request, reply, deps))
  app.addHook('preValidation', async (request) => {
    const { isAsset, isPublic } = request.routeOptions.config
    if (isAsset) return
    checkTexts(request)
    await enter(request)
    if (!request.page.isSignedIn && !isPublic) throw new PatchcordError('signed_out', 'Nobody is signed in here.')
    if (request.method === 'POST') checkForm(request)
  })
  app.addHook('onSend', async (request, reply) => {
    reply.headers(securityHeaders(reply.connectTo ?? []))
    // After the one for all answers, which keeps them out of every cache.
    if (request.routeOptions.config.isAsset && reply.statusCode === 200) reply.header('cache-control', FOR_EVER)
  })
  app.setErrorHandler(async (thrown, request, reply) => {
    // Programs get the answer that they get everywhere else: of the handler above this one.
    if (!wantsPage(request)) throw thrown
    // A request that was refused before it came here.
    if (request.page === null) prepare(request, reply, deps)
    return await answerError(thrown, request, reply, deps)
  })

  serveAssets(app)
  await app.register(loginRoutes, deps)
  await app.register(inviteRoutes, deps)
  await app.register(homeRoutes, deps)
  await app.register(accountRoutes, deps)
  await app.register(agentRoutes, deps)
  await app.register(tokenRoutes, deps)
  await app.register(memberRoutes, deps)
  await app.register(settingsRoutes, deps)
  await app.register(auditRoutes, deps)
  await app.register(messageRoutes, deps)
  await app.register(activityRoutes, deps)
  await app.register(eventRoutes, deps)
  await app.register(formPageRoutes, deps)
}

function decorate(app: FastifyInstance): void {
  app.decorateRequest('person', null as never)
  app.decorateRequest('page', null as never)
  app.decorateReply('connectTo', null as never)
  app.decorateReply('html', async function (this: FastifyReply, page: Page, status = 200) {
    const text = `<!doctype html>${await page}`
    if (this.request.page.flash !== null) clearFlash(this)
    return this.code(status).type('text/html; charset=utf-8').send(text)
  })
  app.decorateReply('fragment', async function (this: FastifyReply, part: Page) {
    const text = String(await part)
    const etag = `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`
    this.header('etag', etag)
    const { pausedAt, now } = this.request.page
    if (pausedAt !== undefined) this.header('x-patchcord-paused', describePause(pausedAt, now) || 'no')
    if (this.request.headers['if-none-match'] === etag) return this.code(304).send()
    return this.type('text/html; charset=utf-8').send(text)
  })
  app.decorateReply('back', function (this: FastifyReply, path: string, flash?: string) {
    if (flash !== undefined) writeFlash(this, flash)
    return this.redirect(path, 303)
  })
}

function prepare(
  request: FastifyRequest,
  reply: FastifyReply,
  { sql, turns, config, version, now }: DashboardDeps,
): void {
  // Without them where a request is refused before its cookies are read.
  request.cookies ??= {}
  const secret = readSession(request)
  request.person = {
    sql,
    turns,
    sessionHash: secret === null ? '' : hashSecret(secret),
    entered: ({ pausedAt }) => {
      request.page.pausedAt = pausedAt
    },
  }
  reply.connectTo = []
  // Made for the first form of a page: answers without one set no cookie.
  let formSecret: string | undefined
  request.page = {
    get csrf() {
      if (this.isSignedIn && secret !== null) return deriveCsrf(secret)
      formSecret ??= ensureFormSecret(request, reply)
      return deriveCsrf(formSecret)
    },
    path: pathOf(request),
    me: NOBODY,
    isSignedIn: false,
    theme: readTheme(request),
    origin: config.publicUrl?.origin ?? `${request.protocol}://${request.host}`,
    flash: readFlash(request),
    version,
    now: now?.() ?? new Date(),
  } satisfies PageContext
}

/** An answer to a form may be a page, too: what it leads on to is the page that the form stood on. */
function pathOf({ method, url, headers }: FastifyRequest): string {
  if (method === 'GET' || method === 'HEAD') return withoutFragment(url)
  const { referer = '' } = headers
  const before = URL.canParse(referer) ? new URL(referer) : null
  return toLocalPath(before && `${before.pathname}${before.search}`) ?? '/'
}

/** No text of Postgres holds a NUL, so nothing has such a name, and no form of ours sends one. Throws not_found or invalid. */
function checkTexts({ params, query, body }: FastifyRequest): void {
  if (holdsNul(params)) throw new PatchcordError('not_found', 'There is nothing at this address.')
  if (holdsNul(query) || holdsNul(body)) {
    throw new PatchcordError('invalid', 'A text holds a character that no text can.', { hint: 'Type it anew.' })
  }
}

function holdsNul(fields: unknown): boolean {
  return Object.values(fields ?? {}).some((value) => String(value).includes('\0'))
}

/** Who sends a request, by its session. */
async function enter({ person, page }: FastifyRequest): Promise<void> {
  if (person.sessionHash === '') return
  try {
    page.me = await getMe(person)
    page.isSignedIn = true
  } catch (error) {
    if (!(error instanceof PatchcordError && error.code === 'signed_out')) throw error
  }
}

/**
 * Throws forbidden for a form that no page of ours has sent, with `cookies: lost` where the browser kept none for it.
 * The Origin header has been checked before (http/guards.ts); here what browsers add, and what only our own pages know.
 */
function checkForm(request: FastifyRequest): void {
  const site = request.headers['sec-fetch-site']
  const secret = request.page.isSignedIn ? readSession(request) : readFormSecret(request)
  const { csrf } = (request.body ?? {}) as { csrf?: unknown }
  const isOurs = site === undefined || site === 'same-origin' || site === 'none'
  if (isOurs && secret !== null && isCsrf(csrf, secret)) return
  const details = isOurs && secret === null ? { cookies: 'lost' } : undefined
  throw new PatchcordError('forbidden', 'This form did not come from a page of yours, or the page was too old.', {
    hint: 'Nothing was changed. Go back, reload the page, and send it again.',
    ...(details && { details }),
  })
}
