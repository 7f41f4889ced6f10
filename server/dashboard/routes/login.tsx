import type { FastifyPluginAsync } from 'fastify'
import { findLoginLink, signIn, signInWithSubject, signOut } from '../../domain/people.ts'
import { PatchcordError } from '../../errors.ts'
import { createGuesses } from '../guesses.ts'
import type { DashboardDeps, Theme } from '../page.ts'
import { ConfirmLogin, DeadLogin, Login } from '../pages/login.tsx'
import { toLocalPath } from '../paths.ts'
import {
  clearInvite,
  clearSession,
  clientOf,
  readInvite,
  takeNext,
  writeNext,
  writeSession,
  writeTheme,
} from '../session.ts'
import { createVerifier } from '../supabase.ts'

type Code = { Params: { code: string } }
const PUBLIC = { config: { isPublic: true } }

export const loginRoutes: FastifyPluginAsync<DashboardDeps> = async (app, deps) => {
  const { sql, config } = deps
  const guess = createGuesses(deps.limiter)
  const verifier = config.supabase && createVerifier(config.supabase, config.signing)

  app.get<{ Querystring: { next?: unknown } }>('/login', PUBLIC, async (request, reply) => {
    const next = toLocalPath(request.query.next)
    if (request.page.isSignedIn) return reply.back(next ?? '/')
    if (next !== null) writeNext(reply, next)
    if (config.supabase) reply.connectTo.push(config.supabase.url.origin)
    const needsInvite = config.signup === 'invite' && readInvite(request) === null
    return reply.html(<Login request={request} supabase={config.supabase} needsInvite={needsInvite} />)
  })

  // Looking at a link must not use it up: mail scanners and previews do.
  app.get<Code>('/login/:code', PUBLIC, async (request, reply) => {
    const link = await guess(request, () => findLoginLink(sql, request.params.code))
    if (!link) return reply.html(<DeadLogin request={request} />, 404)
    return reply.html(<ConfirmLogin request={request} code={request.params.code} link={link} />)
  })

  app.post<Code>('/login/:code', PUBLIC, async (request, reply) => {
    const signedIn = await guess(request, () =>
      ifFound(signIn(sql, { code: request.params.code, ...clientOf(request) })),
    )
    if (!signedIn) return reply.html(<DeadLogin request={request} />, 404)
    writeSession(reply, signedIn.session)
    return reply.back(toLocalPath(takeNext(request, reply)) ?? '/', `You are signed in as ${signedIn.person}.`)
  })

  app.post<{ Body: { access_token?: unknown } }>('/login/supabase', PUBLIC, async (request, reply) => {
    if (!verifier) throw new PatchcordError('not_found', 'This server signs nobody in through Supabase.')
    const subject = await guess(request, () => verifier.verify(request.body.access_token))
    if (!subject) {
      throw new PatchcordError('forbidden', 'The sign-in could not be checked.', {
        hint: 'Go to the sign-in and try again.',
      })
    }
    const invite = readInvite(request)
    const { session, person } = await signInWithSubject(sql, {
      ...subject,
      ...clientOf(request),
      signup: config.signup,
      ...(invite !== null && { invite }),
    })
    writeSession(reply, session)
    if (invite !== null) clearInvite(request, reply)
    return reply.back(toLocalPath(takeNext(request, reply)) ?? '/', `You are signed in as ${person}.`)
  })

  app.post('/logout', async (request, reply) => {
    await signOut(request.person)
    clearSession(reply)
    return reply.back('/login', 'You are signed out.')
  })

  app.post<{ Body: { theme?: unknown; next?: unknown } }>('/theme', PUBLIC, async (request, reply) => {
    const { theme, next } = request.body
    writeTheme(reply, toTheme(theme))
    return reply.back(toLocalPath(next) ?? '/')
  })
}

/** null for what is unknown, used or expired: one answer to all three. */
async function ifFound<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work
  } catch (error) {
    if (error instanceof PatchcordError && error.code === 'not_found') return null
    throw error
  }
}

function toTheme(value: unknown): Theme {
  return value === 'light' || value === 'dark' ? value : 'auto'
}
