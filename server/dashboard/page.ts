import type { FastifyBaseLogger } from 'fastify'
import type { HtmlEscapedString } from 'hono/utils/html'
import type { Config } from '../config.ts'
import type { Sql } from '../db/connect.ts'
import type { Person, PersonScope } from '../db/scope.ts'
import type { Turns } from '../db/turns.ts'
import type { PatchcordError } from '../errors.ts'
import type { WakeBus } from '../wakes/bus.ts'

/** Counts requests of an address; `http/` makes one, and app.ts hands it over. */
export interface Limiter {
  /** Seconds until the address may come again, or null while it is within its limit. */
  hit(address: string): number | null
}

export interface DashboardDeps {
  /** Connected as patchcord_api. */
  sql: Sql
  /** Shares the database out among sessions. */
  turns: Turns
  config: Pick<Config, 'publicUrl' | 'supabase' | 'signing' | 'signup' | 'retentionDays' | 'limits'>
  bus: WakeBus
  version: string
  log: Pick<FastifyBaseLogger, 'warn' | 'error'>
  /** For who guesses links and codes. */
  limiter: Limiter
  /** Whatever was thrown, as what may be told. */
  toError: (thrown: unknown) => PatchcordError
  now?: () => Date
}

export type Theme = 'auto' | 'light' | 'dark'

/** What every page of the dashboard is given. */
export interface PageContext {
  /** For the hidden field of every form; `Form` adds it. */
  csrf: string
  /** Path and query, without a fragment's name: where a form comes back to. */
  path: string
  me: Person
  /** false only on the pages that need no session; `me` is nobody there. */
  isSignedIn: boolean
  theme: Theme
  /** Public origin, for links and snippets. */
  origin: string
  /** A short message of the request before, shown once. */
  flash: string | null
  version: string
  now: Date
  /** Since when the namespace that this request read is paused, ISO; null: it runs; undefined: it read none. */
  pausedAt?: string | null
}

export type Page = HtmlEscapedString | Promise<HtmlEscapedString>

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A page of the dashboard for people who are not signed in. */
    isPublic?: boolean
    /** Not a page: neither session nor form. */
    isAsset?: boolean
  }
  interface FastifyRequest {
    person: PersonScope
    page: PageContext
  }
  interface FastifyReply {
    /** A whole page, or the part of one that a `Live` asks for. */
    html(page: Page, status?: number): Promise<FastifyReply>
    /** A part of a page, for live.js: 304 when it is what the browser has. */
    fragment(part: Page): Promise<FastifyReply>
    /** 303 to a path of the dashboard, with a message that is shown there once. */
    back(path: string, flash?: string): FastifyReply
    /** Origins that the page's scripts may call beside our own. */
    connectTo: string[]
  }
}

export const NOBODY: Person = { personId: '', sessionId: '', name: '', email: null }
