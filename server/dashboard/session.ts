import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { CookieSerializeOptions } from '@fastify/cookie'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { describeBrowser } from './browser.ts'
import type { Theme } from './page.ts'

/** `__Host-`: of this host alone, over https only (or on the machine itself), never set by a neighbour's subdomain (RFC 6265bis, 4.1.3.2). */
export const SESSION_COOKIE = '__Host-patchcord'
/** A secret for the forms of whoever is not signed in yet: without it another site could sign you in as somebody else. */
const FORM_COOKIE = '__Host-patchcord-form'
const FLASH_COOKIE = '__Host-patchcord-flash'
/** What must survive the way to a sign-in and back: where to go on, and an invitation. */
const NEXT_COOKIE = '__Host-patchcord-next'
const INVITE_COOKIE = '__Host-patchcord-invite'
const THEME_COOKIE = 'patchcord-theme'

const SESSION_SECONDS = 30 * 86_400
const FLASH_SECONDS = 60
const TRIP_SECONDS = 15 * 60
const THEME_SECONDS = 365 * 86_400
const FLASH_CHARACTERS_MAX = 300
const SECRET_PATTERN = /^[\w-]{20,200}$/

const HOST_ONLY: CookieSerializeOptions = { path: '/', secure: true, httpOnly: true, sameSite: 'lax' }

/** The secret of the session, or null for none and for what cannot be one. */
export function readSession(request: FastifyRequest): string | null {
  return readSecret(request, SESSION_COOKIE)
}

export function writeSession(reply: FastifyReply, secret: string): void {
  reply.setCookie(SESSION_COOKIE, secret, { ...HOST_ONLY, maxAge: SESSION_SECONDS })
}

export function clearSession(reply: FastifyReply): void {
  reply.clearCookie(SESSION_COOKIE, HOST_ONLY)
}

/** SHA-256 in hex, the only form of a session's secret that the database sees. */
export function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}

/** The browser that signs in, and the session that it had: it ends, so that nobody who knew it is taken along. */
export function clientOf(request: FastifyRequest): { client: string; endSession?: string } {
  const secret = readSession(request)
  return {
    client: describeBrowser(String(request.headers['user-agent'] ?? '')),
    ...(secret !== null && { endSession: hashSecret(secret) }),
  }
}

/** The secret behind the forms of a page without a session: the browser's, or a new one. */
export function ensureFormSecret(request: FastifyRequest, reply: FastifyReply): string {
  const known = readFormSecret(request)
  if (known !== null) return known
  const secret = randomBytes(32).toString('base64url')
  reply.setCookie(FORM_COOKIE, secret, HOST_ONLY)
  return secret
}

export function readFormSecret(request: FastifyRequest): string | null {
  return readSecret(request, FORM_COOKIE)
}

function readSecret(request: FastifyRequest, name: string): string | null {
  const value = request.cookies[name]
  return value !== undefined && SECRET_PATTERN.test(value) ? value : null
}

/** The token of a page's forms: whoever cannot read the cookie cannot make it. */
export function deriveCsrf(secret: string): string {
  return createHmac('sha256', secret).update('patchcord form').digest('base64url')
}

export function isCsrf(value: unknown, secret: string): boolean {
  if (typeof value !== 'string') return false
  const [given, expected] = [Buffer.from(value), Buffer.from(deriveCsrf(secret))]
  return given.length === expected.length && timingSafeEqual(given, expected)
}

/** In base64url: nothing of the text can become part of a header. */
export function writeFlash(reply: FastifyReply, text: string): void {
  const short = text.slice(0, FLASH_CHARACTERS_MAX)
  reply.setCookie(FLASH_COOKIE, Buffer.from(short).toString('base64url'), { ...HOST_ONLY, maxAge: FLASH_SECONDS })
}

/** The message of the request before; the page that shows it clears it. */
export function readFlash(request: FastifyRequest): string | null {
  const value = request.cookies[FLASH_COOKIE]
  return value ? Buffer.from(value, 'base64url').toString().slice(0, FLASH_CHARACTERS_MAX) : null
}

export function clearFlash(reply: FastifyReply): void {
  reply.clearCookie(FLASH_COOKIE, HOST_ONLY)
}

export function writeNext(reply: FastifyReply, path: string): void {
  reply.setCookie(NEXT_COOKIE, Buffer.from(path).toString('base64url'), { ...HOST_ONLY, maxAge: TRIP_SECONDS })
}

/** Whatever the browser says: to be checked by `toLocalPath`. */
export function takeNext(request: FastifyRequest, reply: FastifyReply): string | null {
  const value = take(request, reply, NEXT_COOKIE)
  return value && Buffer.from(value, 'base64url').toString()
}

export function writeInvite(reply: FastifyReply, code: string): void {
  reply.setCookie(INVITE_COOKIE, code, { ...HOST_ONLY, maxAge: TRIP_SECONDS })
}

export function readInvite(request: FastifyRequest): string | null {
  return readSecret(request, INVITE_COOKIE)
}

export function clearInvite(request: FastifyRequest, reply: FastifyReply): void {
  take(request, reply, INVITE_COOKIE)
}

function take(request: FastifyRequest, reply: FastifyReply, name: string): string | null {
  const value = request.cookies[name]
  if (value === undefined) return null
  reply.clearCookie(name, HOST_ONLY)
  return value
}

/** No secret, and wanted on plain http too, hence without `__Host-`. */
export function writeTheme(reply: FastifyReply, theme: Theme): void {
  reply.setCookie(THEME_COOKIE, theme, { path: '/', httpOnly: true, sameSite: 'lax', maxAge: THEME_SECONDS })
}

export function readTheme(request: FastifyRequest): Theme {
  const value = request.cookies[THEME_COOKIE]
  return value === 'light' || value === 'dark' ? value : 'auto'
}
