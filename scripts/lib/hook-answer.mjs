/**
 * What each event of a client means: presence for the server, and notices for the model. Acts as trusted identities only, as
 * `--auto` does, and asks them for nothing that the listener of the project has written down.
 */
import { isHumanPrompt, toLabel } from './hook-input.mjs'
import { HookServers } from './hook-server.mjs'
import { discoverIdentities } from './mcp-json.mjs'
import { getBuiltin } from './node.mjs'
import { prepareRuntimeFolder, readMemory, readStatus, toMemoryFile } from './runtime-folder.mjs'
import { toIdentityKey } from './tokens.mjs'
import { readTrusted, toTrustId } from './trust.mjs'

/** Requests of one hook are made at once; a project with more identities than this is none that people have. */
const IDENTITIES_MAX = 4
/** After a server did not answer, tools are not slowed down by asking it again for this long. */
const PAUSE_MS = 10_000

/**
 * @typedef {import('./hook-notices.mjs').Mail} Mail
 * @typedef {import('./mcp-json.mjs').Identity} Identity
 *
 * @typedef {object} Hook
 * @property {Record<string, unknown>} input
 * @property {string} client
 * @property {Identity[]} identities trusted ones, at least one
 * @property {string} folder the runtime folder
 * @property {string} memoryFile what the hooks of this session have said
 * @property {HookServers} servers
 * @property {Omit<import('./hook-server.mjs').Presence, 'state'>} who
 *
 * @typedef {{ peek: import('./runtime-folder.mjs').Peek | undefined, status: import('./runtime-folder.mjs').ReadStatus | null }} Known
 * @typedef {{ identity: Identity, at: number, inbox: import('./hook-server.mjs').Inbox | null }} Look
 */

/** @type {Record<string, (hook: Hook) => Promise<object | null>>} */
const EVENTS = {
  SessionStart: startSession,
  UserPromptSubmit: takePrompt,
  PostToolUse: followTool,
  Stop: endTurn,
  SessionEnd: endSession,
}

/**
 * @param {{ input: Record<string, unknown>, client: string, settings: import('./config.mjs').Settings }} event
 * @returns {Promise<object | null>} what the client is to read on stdout; null: nothing
 */
export async function answerHook({ input, client: name, settings }) {
  const event = String(input.hook_event_name)
  const handle = Object.hasOwn(EVENTS, event) ? EVENTS[event] : undefined
  // What a session has started works for it, and the session is told itself.
  if (handle === undefined || typeof input.agent_id === 'string') return null
  const client = toLabel(name)
  const { identities, untrusted } = findIdentities(input, settings)
  if (identities.length === 0) {
    if (untrusted === null || event !== 'SessionStart') return null
    return toContext(event, (await loadNotices()).describeUntrusted(untrusted))
  }
  const session = toLabel(input.session_id)
  const folder = prepareRuntimeFolder(settings.runtimeFolders)
  const memoryFile = toMemoryFile(folder, session)
  const who = { client, session, machine: settings.machine }
  const servers = new HookServers(settings.hookMs)
  return await handle({ input, client, identities, folder, memoryFile, servers, who })
}

/**
 * As the listener finds them.
 * @param {Record<string, unknown>} input @param {import('./config.mjs').Settings} settings
 * @returns {{ identities: Identity[], untrusted: import('./hook-notices.mjs').Untrusted | null }} untrusted: why there are none
 */
function findIdentities(input, { pair, lookup, trustFile }) {
  const folder = lookup('CLAUDE_PROJECT_DIR') || (typeof input.cwd === 'string' ? input.cwd : process.cwd())
  const { identities } = discoverIdentities({ folder, pair, lookup })
  if (identities.length === 0) return { identities, untrusted: null }
  const trusted = readTrusted(trustFile)
  const known = identities.filter((identity) => trusted.has(toTrustId(identity))).slice(0, IDENTITIES_MAX)
  if (known.length > 0) return { identities: known, untrusted: null }
  const isServerKnown = identities.some(({ base }) => [...trusted].some((id) => id.startsWith(`${base} `)))
  return { identities: [], untrusted: isServerKnown ? 'token' : 'server' }
}

/** @param {Hook} hook */
async function startSession(hook) {
  const introductions = hook.identities.map((identity) => introduce(hook, identity))
  const { forgetOldSessions } = await loadNotices()
  forgetOldSessions(hook.folder)
  const texts = [...new Set((await Promise.all(introductions)).flat())]
  return texts.length === 0 ? null : toContext('SessionStart', texts.join(' '))
}

/** @param {Hook} hook @param {Identity} identity @returns {Promise<string[]>} */
async function introduce({ client, servers, folder }, identity) {
  const status = await readStatus(folder, identity)
  const answers = Promise.all([
    status?.isLive === true ? { ...status, isWakeable: true } : servers.findSelf(identity),
    servers.findVersion(identity),
  ])
  const { describeIdentity, describeVersions } = await loadNotices()
  const own = JSON.parse(getBuiltin('fs').readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version
  const [self, version] = await answers
  if (self === null) return []
  const versions = describeVersions(own, version)
  const who = describeIdentity({ ...self, client })
  return versions === null ? [who] : [who, versions]
}

/** @param {Hook} hook */
async function takePrompt(hook) {
  const isHuman = isHumanPrompt(hook.input.prompt)
  // What an event of our listener has just told of is not told again with the next tool; another event is no reason to look.
  const isTold = !isHuman && /PATCHCORD: \d/.test(String(hook.input.prompt))
  const [mails] = await Promise.all([
    isHuman || isTold ? findNews(hook, ['told'], isTellable) : [],
    reportPresence(hook, 'busy', isHuman),
  ])
  return isTold || mails.length === 0 ? null : await toNews('UserPromptSubmit', mails)
}

/** @param {Hook} hook */
async function followTool(hook) {
  const mails = await findNews(hook, ['told'], (known) => isTellable(known) && !hasFailedLately(known))
  return mails.length === 0 ? null : await toNews('PostToolUse', mails)
}

/**
 * The only keys are `decision` and `reason`: Codex refuses an answer with any other.
 * @param {Hook} hook
 */
async function endTurn(hook) {
  if (hook.input.stop_hook_active !== true) {
    const mails = await findNews(hook, ['blocked', 'told'], mayHoldNew)
    if (mails.length > 0) return { decision: 'block', reason: (await loadNotices()).describeUnread(mails) }
  }
  await reportPresence(hook, 'idle')
  return null
}

/** @param {Hook} hook */
async function endSession(hook) {
  // After /clear the session goes on.
  if (hook.input.reason !== 'clear') await reportPresence(hook, 'idle')
  return null
}

/** @param {Hook} hook @param {'idle' | 'busy'} state @param {boolean} [isHuman] a person has just typed */
async function reportPresence({ servers, identities, who }, state, isHuman = false) {
  const presence = { ...who, state, ...(isHuman && { human_prompt: /** @type {const} */ (true) }) }
  await Promise.all(identities.map((identity) => servers.report(identity, presence)))
}

/**
 * What is new and was not said before, and notes that it now is.
 * @param {Hook} hook @param {import('./runtime-folder.mjs').Kind[]} kinds by the first it is known what was said before
 * @param {(known: Known) => boolean} isAsked whether the server is, with what is known without it
 * @returns {Promise<Mail[]>}
 */
async function findNews({ folder, memoryFile, identities, servers }, kinds, isAsked) {
  const { peeks } = readMemory(memoryFile)
  const looks = identities.map(async (identity) => {
    const known = { peek: peeks[toIdentityKey(identity)], status: await readStatus(folder, identity) }
    if (!isAsked(known)) return []
    const look = lookInto(servers, identity)
    // While the server thinks, there is time for what comes after it.
    const [done] = await Promise.all([look, loadNotices()])
    return [done]
  })
  const found = (await Promise.all(looks)).flat()
  if (found.length === 0) return []
  const ids = found.flatMap(({ inbox }) => inbox?.pending.map(({ id }) => id) ?? [])
  const fresh = (await loadNotices()).noteFound(memoryFile, { ids, kinds, peeks: toPeeks(found) })
  return found.flatMap(({ inbox }) => {
    const from = inbox?.pending.filter(({ id }) => fresh.has(id)).map((message) => message.from) ?? []
    return inbox === null || from.length === 0 ? [] : [{ agent: inbox.agent, namespace: inbox.namespace, from }]
  })
}

/** A listener that hears has nothing new. @param {Known} known */
function mayHoldNew({ status }) {
  return !(status?.isLive === true && status.new === 0)
}

/** Nor has anything come since a hook of this session has looked. @param {Known} known */
function isTellable(known) {
  const { peek, status } = known
  const isAsBefore = status?.isLive === true && peek !== undefined && peek.new >= 0 && peek.at > status.updatedAtMs
  return mayHoldNew(known) && !isAsBefore
}

/** @param {Known} known */
function hasFailedLately({ peek }) {
  return peek?.new === -1 && Math.abs(Date.now() - peek.at) < PAUSE_MS
}

/** @param {HookServers} servers @param {Identity} identity @returns {Promise<Look>} */
async function lookInto(servers, identity) {
  const at = Date.now()
  return { identity, at, inbox: await servers.peek(identity) }
}

/** For the next hook and for the status line. @param {Look[]} looks */
function toPeeks(looks) {
  const entries = looks.map(({ identity, at, inbox }) => {
    const { agent = '', namespace = '', pending = null } = inbox ?? {}
    return [toIdentityKey(identity), { at, new: pending?.length ?? -1, agent, namespace }]
  })
  return Object.fromEntries(entries)
}

/** What most hooks do not need, as they have nothing to say, is not loaded. */
function loadNotices() {
  return import('./hook-notices.mjs')
}

/** @param {string} hookEventName @param {Mail[]} mails */
async function toNews(hookEventName, mails) {
  return toContext(hookEventName, (await loadNotices()).describeNews(mails))
}

/** @param {string} hookEventName @param {string} additionalContext */
function toContext(hookEventName, additionalContext) {
  return { hookSpecificOutput: { hookEventName, additionalContext } }
}
