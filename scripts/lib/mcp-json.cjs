/** Finds the Patchcord identities of a project in `.mcp.json`, without trusting the file further than needed. */
const fs = require('node:fs')
const { dirname, join, sep } = require('node:path')
const { isRecord, toOneLine } = require('./basics.cjs')
const { isTokenText } = require('./identity.cjs')

const FILE = '.mcp.json'
/** Of one discovery: a repository can link to one large file from every folder of a deep path. */
const BYTES_MAX = 1024 * 1024
const FILES_MAX = 16
const CHUNK_BYTES = 64 * 1024
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/
const PLACEHOLDER = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s
/** Of a url or a header, before and after `${VAR}` in it is expanded: no address and no token is longer. */
const TEXT_MAX = 4 * 1024
const ADDRESS_VARIABLE = /^PATCHCORD_(?:URL|BASE_URL|SERVER|ORIGIN|HOST|PORT)$/
const HTTP_TYPES = new Set([undefined, 'http', 'streamable-http'])

const MISSING_ENTRY = '.mcp.json missing mcpServers.patchcord.url or Authorization'
const OUTSIDE = '.mcp.json leads out of this project through a symlink, put a file in its place'

/**
 * @typedef {object} Identity
 * @property {string} base where the API lives: origin and path prefix, without a slash at the end
 * @property {string} origin
 * @property {string} token
 *
 * @typedef {object} Discovery
 * @property {Identity[]} identities
 * @property {string | null} problem the contract's sentence when there are none
 * @property {boolean} isBroken a file could not be parsed, so that an identity may only seem to be gone
 * @property {string[]} notes what was left out and why, for stderr
 * @property {string} fingerprint changes when a file changes
 */

/** @typedef {(name: string) => string | undefined} Lookup */

/** @returns {number | null} whose files count; null where users have no numbers, as on Windows */
function getOwnUid() {
  return process.getuid === undefined ? null : process.getuid()
}

/**
 * The identities of `PATCHCORD_URL` and `PATCHCORD_TOKEN`, else of the `.mcp.json` of the folder and its parents up to
 * the repository root (only the folder itself outside of a repository); the nearest entry of a name wins. What belongs to
 * another user counts for nothing: in a folder like /tmp anybody can put a repository around ours. Nor does what a symlink
 * leads to outside of the repository: who was cloned does not get to be the agent of the project beside it.
 * @param {{ folder: string, pair: { url: string, token: string } | null, lookup: Lookup, uid?: number | null }} input
 * @returns {Discovery}
 */
function discoverIdentities({ folder, pair, lookup, uid = getOwnUid() }) {
  if (pair !== null) return discoverPair(pair)
  /** @type {Map<string, unknown>} */
  const entries = new Map()
  /** @type {string[]} */
  const notes = []
  let problem = `no .mcp.json in ${folder}`
  let isBroken = false
  let fingerprint = ''
  for (const { file, ...found } of readFiles(folder, uid, lookup)) {
    fingerprint += `${file} ${found.fingerprint}\n`
    if (found.leftOut !== undefined) {
      notes.push(`${toOneLine(file, 200)} ${found.leftOut}`)
      if (found.problem !== null && !isBroken) problem = found.problem
      continue
    }
    if (found.problem !== null) {
      if (!isBroken) problem = found.problem
      isBroken = true
      notes.push(`${file}: ${found.problem}`)
      continue
    }
    if (!isBroken) problem = MISSING_ENTRY
    for (const [name, entry] of Object.entries(found.servers)) if (!entries.has(name)) entries.set(name, entry)
  }
  const identities = readEntries(entries, lookup, notes)
  return { identities, problem: identities.length > 0 ? null : problem, isBroken, notes, fingerprint }
}

/**
 * @typedef {object} Found
 * @property {Record<string, unknown>} servers
 * @property {string | null} problem
 * @property {string} fingerprint
 * @property {string} [leftOut] what is said of a file that counts for nothing, behind its path
 */

/**
 * Every file that is there, nearest first, as far as all of them together may cost.
 * @param {string} folder @param {number | null} uid @param {Lookup} lookup
 * @returns {Generator<Found & { file: string }>}
 */
function* readFiles(folder, uid, lookup) {
  const { files, root } = listCandidates(folder, uid)
  const budget = { bytes: BYTES_MAX }
  let count = 0
  for (const file of files) {
    const found = readMcpJson(file, { uid, budget, isInside: (real) => isInside(real, { file, root, lookup }) })
    if (found === null) continue
    count++
    if (count > FILES_MAX) {
      const leftOut = `is left out, as are those above it: ${FILES_MAX} files are read for one folder, not more`
      return yield { file, servers: {}, problem: null, fingerprint: '', leftOut }
    }
    yield { file, ...found }
    if (budget.bytes < 0) return
  }
}

/** @param {{ url: string, token: string }} pair @returns {Discovery} */
function discoverPair({ url, token }) {
  const base = parseBase(url)
  const isUsable = base !== null && isTokenText(token)
  return {
    identities: isUsable ? [{ ...base, token }] : [],
    problem: isUsable ? null : 'PATCHCORD_URL or PATCHCORD_TOKEN is not valid',
    isBroken: false,
    notes: [],
    fingerprint: '',
  }
}

/**
 * @param {string} folder @param {number | null} uid
 * @returns {{ files: string[], root: string }} nearest first; root: of the repository, or the folder itself
 */
function listCandidates(folder, uid) {
  const files = []
  for (let current = folder; ; current = dirname(current)) {
    files.push(join(current, FILE))
    // `.git` is a folder in a clone and a file in a worktree or submodule.
    const git = lstatOrNull(join(current, '.git'))
    if (git !== null && isOurs(git, uid)) return { files, root: current }
    if (git !== null || dirname(current) === current) return { files: files.slice(0, 1), root: folder }
  }
}

/**
 * Whether a file is what it seems to be, a part of the project. A home that is kept in a repository as a whole is not one
 * project: no link counts there.
 * @param {string} real @param {{ file: string, root: string, lookup: Lookup }} place
 */
function isInside(real, { file, root, lookup }) {
  const project = realpathOrNull(root)
  const home = realpathOrNull(lookup('HOME'))
  if (project !== null && (home === null || !isWithin(join(home, FILE), project))) return isWithin(real, project)
  return real === join(realpathOrNull(dirname(file)) ?? '', FILE)
}

/** Both real paths. @param {string} file @param {string} folder */
function isWithin(file, folder) {
  return file.startsWith(folder.endsWith(sep) ? folder : folder + sep)
}

/** @param {string | undefined} path */
function realpathOrNull(path) {
  try {
    return path ? fs.realpathSync.native(path) : null
  } catch {
    return null
  }
}

/** @param {string} path */
function lstatOrNull(path) {
  try {
    return fs.lstatSync(path, { throwIfNoEntry: false }) ?? null
  } catch {
    return null
  }
}

/** @param {import('node:fs').Stats} stats @param {number | null} uid */
function isOurs(stats, uid) {
  return uid === null || stats.uid === uid
}

/**
 * @param {string} file
 * @param {{ uid: number | null, budget: { bytes: number }, isInside: (real: string) => boolean }} limits budget: what may be
 *   read still; below zero: it was not enough
 * @returns {Found | null} null: no such file
 */
function readMcpJson(file, { uid, budget, isInside }) {
  let handle
  try {
    const real = fs.realpathSync.native(file)
    if (!isInside(real)) {
      const leftOut = 'leads out of this project through a symlink and is left out: put a file in its place'
      return { servers: {}, problem: OUTSIDE, fingerprint: real, leftOut }
    }
    // O_NONBLOCK: a named pipe in a cloned repository must not hold us for ever.
    handle = fs.openSync(real, fs.constants.O_RDONLY | (fs.constants.O_NONBLOCK ?? 0))
  } catch (error) {
    const code = codeOf(error)
    if (code === 'ENOENT' || code === 'ENOTDIR') return null
    return { servers: {}, problem: `.mcp.json parse error: ${code}`, fingerprint: code }
  }
  try {
    const stats = fs.fstatSync(handle)
    const fingerprint = `${stats.ino} ${stats.size} ${stats.mtimeMs} ${stats.uid}`
    if (!isOurs(stats, uid)) {
      const leftOut = 'belongs to another user and is left out: chown it if it is yours'
      return { servers: {}, problem: null, fingerprint, leftOut }
    }
    if (!stats.isFile()) return { servers: {}, problem: '.mcp.json parse error: not a file', fingerprint }
    return { ...readWithin(handle, budget), fingerprint }
  } catch (error) {
    // A file of the kernel's, or of a disk that fails.
    return { servers: {}, problem: `.mcp.json parse error: ${codeOf(error)}`, fingerprint: codeOf(error) }
  } finally {
    fs.closeSync(handle)
  }
}

/** @param {number} handle @param {{ bytes: number }} budget */
function readWithin(handle, budget) {
  const others = budget.bytes < BYTES_MAX ? ' with those below it' : ''
  const bytes = readUpTo(handle, budget.bytes)
  budget.bytes -= bytes?.length ?? Number.POSITIVE_INFINITY
  if (bytes === null) return { servers: {}, problem: `.mcp.json parse error: over 1 MiB${others}` }
  return parseMcpJson(bytes.toString('utf8'))
}

/** @param {unknown} error */
function codeOf(error) {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unreadable'
}

/**
 * Whatever size the file says it has: a link of a repository may lead to one of the kernel's, of size 0 and without end.
 * @param {number} handle @param {number} bytesMax
 * @returns {Buffer | null} null: there is more
 */
function readUpTo(handle, bytesMax) {
  /** @type {Buffer[]} */
  const chunks = []
  for (let left = bytesMax; left >= 0; ) {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
    const length = fs.readSync(handle, chunk)
    if (length === 0) return Buffer.concat(chunks)
    chunks.push(chunk.subarray(0, length))
    left -= length
  }
  return null
}

/** @param {string} text @returns {{ servers: Record<string, unknown>, problem: string | null }} */
function parseMcpJson(text) {
  try {
    // A byte order mark, as editors on Windows write it, is no part of JSON.
    const json = /** @type {unknown} */ (JSON.parse(text.replace(/^\uFEFF/, '')))
    const servers = isRecord(json) ? json.mcpServers : undefined
    return { servers: isRecord(servers) ? servers : {}, problem: null }
  } catch (error) {
    return { servers: {}, problem: `.mcp.json parse error: ${describeSyntaxError(error, text)}` }
  }
}

/**
 * V8 quotes the file in its message; the file holds a token and may be hostile, so only the place is passed on.
 * @param {unknown} error @param {string} text
 */
function describeSyntaxError(error, text) {
  const message = error instanceof Error ? error.message : ''
  const position = /at position (\d+)/.exec(message)?.[1]
  if (position !== undefined) {
    const before = text.slice(0, Number(position)).split('\n')
    return `unexpected character at line ${before.length} column ${(before.at(-1) ?? '').length + 1}`
  }
  return /end of JSON/.test(message) ? 'unexpected end of the file' : 'not valid JSON'
}

/** @param {Map<string, unknown>} entries @param {Lookup} lookup @param {string[]} notes @returns {Identity[]} */
function readEntries(entries, lookup, notes) {
  /** @type {Map<string, Identity>} */
  const identities = new Map()
  for (const [name, entry] of entries) {
    if (!isRecord(entry) || !HTTP_TYPES.has(/** @type {string} */ (entry.type))) continue
    const token = readBearer(entry.headers, lookup)
    if (!name.startsWith('patchcord') && token === null) continue
    const base = typeof entry.url === 'string' ? parseBase(expandUrl(entry.url, lookup)) : null
    if (base !== null && token !== null) identities.set(`${base.base} ${token}`, { ...base, token })
    else notes.push(`${toOneLine(name, 40)}: ${describeProblem(entry, base, token, lookup)}`)
  }
  return [...identities.values()]
}

/** @param {Record<string, unknown>} entry @param {unknown} base @param {string | null} token @param {Lookup} lookup */
function describeProblem({ url, headers }, base, token, lookup) {
  if (typeof url !== 'string') return 'no url'
  if (base === null) return 'the url is not https, or http to this machine'
  return token === null ? describeToken(headers, lookup) : ''
}

/**
 * What a person most likely did wrong with the token. Never quotes the value, which may be another secret.
 * @param {unknown} headers @param {Lookup} lookup
 */
function describeToken(headers, lookup) {
  const value = isRecord(headers)
    ? Object.entries(headers).find(([name]) => name.toLowerCase() === 'authorization')?.[1]
    : null
  if (typeof value !== 'string') return 'there is no Authorization header'
  if (value.length > TEXT_MAX) return 'Authorization is longer than any token'
  const unset = [...findPlaceholders(value)].find(({ name, fallback }) => !lookup(name) && fallback === undefined)
  if (unset) return `the variable ${toOneLine(unset.name, 60)} of Authorization is not set`
  if (/\bpc_/.test(expand(value, lookup)))
    return 'the token in Authorization is mistyped or cut off (its checksum is wrong)'
  return 'Authorization is not "Bearer" and a Patchcord token'
}

/** @param {string} template @param {Lookup} lookup */
function expand(template, lookup) {
  return replacePlaceholders(template, ({ name, fallback = '' }) => lookup(name) || fallback)
}

/** @typedef {{ name: string, fallback: string | undefined, start: number, end: number }} Placeholder */

/**
 * Each `${NAME}` and `${NAME:-fallback}`. Looks at no character twice, as a repository can write a megabyte of their beginnings.
 * @param {string} text @returns {Generator<Placeholder>}
 */
function* findPlaceholders(text) {
  let close = 0
  for (let start = text.indexOf('${'), next = 0; start >= 0; start = text.indexOf('${', next)) {
    if (close <= start) close = text.indexOf('}', start)
    if (close < 0) return
    const [, name, fallback] = PLACEHOLDER.exec(text.slice(start + 2, close)) ?? []
    next = name === undefined ? start + 2 : close + 1
    if (name !== undefined) yield { name, fallback, start, end: next }
  }
}

/**
 * @param {string} template @param {(placeholder: Placeholder) => string} toValue
 * @returns {string} a text that is neither a url nor a token, where it is too long before or after
 */
function replacePlaceholders(template, toValue) {
  if (template.length > TEXT_MAX) return '\0'
  let text = ''
  let end = 0
  for (const placeholder of findPlaceholders(template)) {
    text += template.slice(end, placeholder.start) + toValue(placeholder)
    end = placeholder.end
    if (text.length > TEXT_MAX) return '\0'
  }
  return text + template.slice(end)
}

/** @param {unknown} headers @param {Lookup} lookup @returns {string | null} */
function readBearer(headers, lookup) {
  if (!isRecord(headers)) return null
  for (const [name, value] of Object.entries(headers)) {
    if (name.toLowerCase() !== 'authorization' || typeof value !== 'string') continue
    const token = /^\s*Bearer\s+(\S+)\s*$/i.exec(expand(value, lookup))?.[1]
    if (isTokenText(token)) return token
  }
  return null
}

/**
 * Expands `${VAR}` in a url. A repository chooses the template, so it could ask for any secret of the environment: only
 * variables that are named as Patchcord's address, a whole address at the start and a port number are let through.
 * @param {string} template @param {Lookup} lookup
 */
function expandUrl(template, lookup) {
  return replacePlaceholders(template, ({ name, fallback, start }) => {
    const value = lookup(name)
    if (value === undefined || value === '') return fallback ?? ''
    if (value.includes('pc_')) return '\0'
    if (ADDRESS_VARIABLE.test(name) || /^\d{1,5}$/.test(value)) return value
    return start === 0 && /^https?:\/\//.test(value) ? value : '\0'
  })
}

/**
 * `https://host/prefix/mcp/bearer` → the API's base `https://host/prefix`. Plain http only to this machine.
 * @param {string} text
 * @returns {{ base: string, origin: string } | null}
 */
function parseBase(text) {
  if (text.includes('\0') || !URL.canParse(text)) return null
  const url = new URL(text)
  if (url.username !== '' || url.password !== '') return null
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && isLoopback(url.hostname))) return null
  const path = url.pathname.replace(/\/mcp(?:\/bearer)?\/?$/, '')
  let length = path.length
  while (path[length - 1] === '/') length--
  return { base: `${url.origin}${path.slice(0, length)}`, origin: url.origin }
}

/** @param {string} hostnameOfUrl as `URL.hostname` gives it: lower case, IPv6 in brackets */
function isLoopback(hostnameOfUrl) {
  return LOOPBACK.test(hostnameOfUrl)
}

module.exports = { discoverIdentities, isLoopback, MISSING_ENTRY, parseBase, parseMcpJson }
