import assert from 'node:assert/strict'
import { createLoginLink } from '../../server/domain/people.ts'
import type { TestDatabase } from './database.ts'

export interface PageAnswer {
  status: number
  headers: Headers
  /** Where a redirect goes, or null. */
  location: string | null
  /** The answer's text, as it came. */
  html: string
  /** What a reader sees of it: no tags, entities as their characters, runs of space as one. */
  text: string
}

/** A browser as far as the dashboard needs one: it keeps cookies, also secure ones, and follows nothing by itself. */
export interface Browser {
  /** Name and value of what is kept. */
  cookies: Map<string, string>
  /** The form token of the last page that had one. */
  csrf: string
  request(method: string, path: string, init?: { headers?: Record<string, string>; body?: string }): Promise<PageAnswer>
  get(path: string, headers?: Record<string, string>): Promise<PageAnswer>
  /** Sends a form with the token of the last page. */
  post(path: string, fields?: Record<string, string>, headers?: Record<string, string>): Promise<PageAnswer>
  /** Follows redirects to the page at their end. */
  follow(answer: PageAnswer): Promise<PageAnswer>
}

export function createBrowser(app: { url: string }): Browser {
  const cookies = new Map<string, string>()
  const browser: Browser = {
    cookies,
    csrf: '',
    async request(method, path, init = {}) {
      const cookie = Array.from(cookies, ([name, value]) => `${name}=${value}`).join('; ')
      const headers = { accept: 'text/html', ...(cookie && { cookie }), ...init.headers }
      const response = await fetch(`${app.url}${path}`, { ...init, method, headers, redirect: 'manual' })
      for (const line of response.headers.getSetCookie()) keepCookie(cookies, line)
      const html = await response.text()
      browser.csrf = /name="csrf" value="([^"]+)"/.exec(html)?.[1] ?? browser.csrf
      const location = response.headers.get('location')
      return { status: response.status, headers: response.headers, location, html, text: readText(html) }
    },
    get: (path, headers = {}) => browser.request('GET', path, { headers }),
    post: (path, fields = {}, headers = {}) =>
      browser.request('POST', path, {
        headers: { 'content-type': 'application/x-www-form-urlencoded', origin: app.url, ...headers },
        body: new URLSearchParams({ csrf: browser.csrf, ...fields }).toString(),
      }),
    async follow(answer) {
      let last = answer
      for (let hops = 0; last.location !== null; hops++) {
        assert.ok(hops < 5, `a circle of redirects at ${last.location}`)
        last = await browser.get(last.location)
      }
      return last
    },
  }
  return browser
}

/** A browser in which somebody is signed in by a login link: the operator, or the named person. */
export async function signIn(
  app: { url: string },
  database: Pick<TestDatabase, 'admin'>,
  input: { person?: string } = {},
): Promise<Browser> {
  const { code } = await createLoginLink(database.admin, input)
  const browser = createBrowser(app)
  await browser.get(`/login/${code}`)
  const answer = await browser.post(`/login/${code}`)
  assert.equal(answer.status, 303, answer.text)
  return browser
}

/** A browser that holds the session of a seeded person. */
export function browseAs(app: { url: string }, person: { session: string }): Browser {
  const browser = createBrowser(app)
  browser.cookies.set('__Host-patchcord', person.session)
  return browser
}

function keepCookie(cookies: Map<string, string>, line: string): void {
  const [pair = '', ...attributes] = line.split('; ')
  const split = pair.indexOf('=')
  const [name, value] = [pair.slice(0, split), pair.slice(split + 1)]
  const isGone = attributes.some((each) => /^(?:max-age=0|expires=Thu, 01 Jan 1970)/i.test(each))
  if (isGone) cookies.delete(name)
  else cookies.set(name, value)
}

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" }

/** The text between tags, as a reader sees it. */
export function readText(html: string): string {
  return html
    .replaceAll(/<(script|style|title)\b[\s\S]*?<\/\1>/g, '')
    .replaceAll(/<[^>]*>/g, '')
    .replaceAll(/&(\w+|#39);/g, (whole, name: string) => ENTITIES[name] ?? whole)
    .replaceAll(/\s+/g, ' ')
    .trim()
}
