const PATH_CHARACTERS_MAX = 1_000
const BASE = 'http://patchcord.invalid'
/** The query parameter by which live.js asks for a part of a page. */
export const FRAGMENT = 'fragment'

/**
 * A path of this server out of what a browser sent, or null: no other host by `//`, a backslash or a control character, which
 * browsers read as a slash or leave out, and none of the pages that sign in or out.
 */
export function toLocalPath(text: unknown): string | null {
  if (typeof text !== 'string' || text.length > PATH_CHARACTERS_MAX) return null
  if (!/^\/(?!\/)[\x21-\x7e]*$/.test(text) || text.includes('\\')) return null
  const url = URL.canParse(text, BASE) ? new URL(text, BASE) : null
  if (
    url?.origin !== BASE ||
    url.pathname.startsWith('//') ||
    /^\/(?:login|logout|assets)(?:\/|$)/.test(url.pathname)
  ) {
    return null
  }
  return withoutFragment(`${url.pathname}${url.search}`)
}

/** The same path and query without the name of a part: what the address bar shows. */
export function withoutFragment(path: string): string {
  const [pathname = '/', query] = path.split('?', 2)
  const parameters = new URLSearchParams(query ?? '')
  if (query === undefined || !parameters.has(FRAGMENT)) return path
  parameters.delete(FRAGMENT)
  return parameters.size > 0 ? `${pathname}?${parameters}` : pathname
}

/** Where a part of the page at `path` is fetched from. */
export function fragmentPath(path: string, name: string): string {
  const [pathname, query] = path.split('?', 2)
  const parameters = new URLSearchParams(query ?? '')
  parameters.set(FRAGMENT, name)
  return `${pathname}?${parameters}`
}
