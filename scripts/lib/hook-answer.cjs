/**
 * What each event of a client means: presence for the server, and notices for the model. Acts as trusted identities only, as
 * `--auto` does, and asks them for nothing that the listener of the project has written down.
 */

const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { isHumanPrompt, toLabel } = require('./config.cjs')
const { HookServers } = require('./hook-server.cjs')
const { readTrusted, toIdentityKey, toTrustId } = require('./identity.cjs')
const { discoverIdentities } = require('./mcp-json.cjs')
const { prepareRuntimeFolder, readMemory, readStatus, toMemoryFile } = require('./runtime-folder.cjs')

/** Requests of one hook are made at once; a project with more identities than this is none that people have. */
const IDENTITIES_MAX = 4
/** After a server did not answer, tools are not slowed down by asking it again for this long. */
const PAUSE_MS = 10_000

/**
 * @typedef {import('./hook-notices.cjs').Mail} Mail
 * @typedef {import('./mcp-json.cjs').Identity} Identity
 *
 * @typedef {object} Hook
 * @property {Record<string, unknown>} input
 * @property {string} client
 * @property {Identity[]} identities trusted ones, at least one
 * @property {string} folder the runtime folder
 * @property {string} memoryFile what the hooks of this session have said
 * @property {InstanceType<typeof HookServers>} servers
 * @property {import('./hook-server.cjs').Who} who
 *
 * @typedef {{ peek: import('./runtime-folder.cjs').Peek | undefined, status: import('./runtime-folder.cjs').ReadStatus | null }} Known
 * @typedef {{ identity: Identity, at: number, inbox: import('./hook-server.cjs').Inbox | null }} Look
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
 * @param {{ input: Record<string, unknown>, client: string, settings: import('./config.cjs').Settings }} event
 * @returns {Promise<object | null>} what the client is to read on stdout; null: nothing
 */
async function answerHook({ input, client: name, settings }) {
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
 * @param {Record<string, unknown>} input @param {import('./config.cjs').Settings} settings
 * @returns {{ identities: Identity[], untrusted: import('./hook-notices.cjs').Untrusted | null }} untrusted: why there are none
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
  const status = readStatus(folder, identity)
  const answer = status?.isLive === true ? findVersion(servers, identity, status) : servers.findSelf(identity)
  const { describeIdentity, describeVersions } = await loadNotices()
  const own = JSON.parse(readFileSync(join(__dirname, '../../package.json'), 'utf8')).version
  const self = await answer
  if (self === null) return []
  const versions = describeVersions(own, self.version)
  const who = describeIdentity({ ...self, client })
  return versions === null ? [who] : [who, versions]
}

/** @param {InstanceType<typeof HookServers>} servers @param {Identity} identity @param {import('./runtime-folder.cjs').ReadStatus} status a live one */
async function findVersion(servers, identity, { agent, namespace }) {
  return { agent, namespace, isWakeable: true, version: await servers.findVersion(identity) }
}

/** @param {Hook} hook */
async function takePrompt(hook) {
  const isHuman = isHumanPrompt(hook.input.prompt)
  // What an event of our listener has just told of is not told again with the next tool; another event is no reason to look.
  const isTold = !isHuman && /PATCHCORD: \d/.test(String(hook.input.prompt))
  const presence = { ...hook.who, state: 'busy', ...(isHuman && { human_prompt: true }) }
  const { mails } = await findNews(hook, {
    kinds: ['told'],
    isAsked: (known) => (isHuman || isTold) && isTellable(known),
    ask: (identity) => hook.servers.reportAndPeek(identity, presence, 'show'),
    otherwise: (identity) => hook.servers.report(identity, presence),
  })
  return isTold || mails.length === 0 ? null : await toNews('UserPromptSubmit', mails)
}

/** @param {Hook} hook */
async function followTool(hook) {
  const { mails } = await findNews(hook, {
    kinds: ['told'],
    isAsked: (known) => isTellable(known) && !hasFailedLately(known),
    ask: (identity) => hook.servers.peek(identity),
  })
  return mails.length === 0 ? null : await toNews('PostToolUse', mails)
}

/**
 * The only keys are `decision` and `reason`: Codex refuses an answer with any other.
 * @param {Hook} hook
 */
async function endTurn(hook) {
  if (hook.input.stop_hook_active === true) return await report(hook, hook.identities, 'idle')
  const idle = { ...hook.who, state: 'idle' }
  const { mails, looks } = await findNews(hook, {
    kinds: ['blocked', 'told'],
    isAsked: mayHoldNew,
    ask: (identity) => hook.servers.reportAndPeek(identity, idle, 'first'),
    otherwise: (identity) => hook.servers.report(identity, idle),
  })
  // Something is new to them, so the server has left their state as it was.
  const held = looks.filter(({ inbox }) => inbox === null || inbox.pending.length > 0).map(({ identity }) => identity)
  // It was said before, and the turn ends.
  if (mails.length === 0) return await report(hook, held, 'idle')
  const others = hook.identities.filter((identity) => !held.includes(identity))
  const [{ describeUnread }] = await Promise.all([loadNotices(), report(hook, others, 'busy')])
  return { decision: 'block', reason: describeUnread(mails) }
}

/** @param {Hook} hook */
async function endSession(hook) {
  // After /clear the session goes on.
  return hook.input.reason === 'clear' ? null : await report(hook, hook.identities, 'idle')
}

/** @param {Hook} hook @param {Identity[]} identities @param {'busy' | 'idle'} state @returns {Promise<null>} nothing to say */
async function report({ servers, who }, identities, state) {
  await Promise.all(identities.map((identity) => servers.report(identity, { ...who, state })))
  return null
}

/**
 * @typedef {object} Search
 * @property {import('./runtime-folder.cjs').Kind[]} kinds by the first it is known what was said before
 * @property {(known: Known) => boolean} isAsked whether the server is asked for new messages, with what is known without it
 * @property {(identity: Identity) => Promise<import('./hook-server.cjs').Inbox | null>} ask
 * @property {(identity: Identity) => Promise<void>} [otherwise] what else is to be told to the server
 */

/**
 * What is new and was not said before, and notes that it now is.
 * @param {Hook} hook @param {Search} search
 * @returns {Promise<{ mails: Mail[], looks: Look[] }>}
 */
async function findNews({ folder, memoryFile, identities }, { kinds, isAsked, ask, otherwise }) {
  const { peeks } = readMemory(memoryFile)
  const found = identities.map(async (identity) => {
    const known = { peek: peeks[toIdentityKey(identity)], status: readStatus(folder, identity) }
    if (isAsked(known)) return [await lookInto(identity, ask)]
    await otherwise?.(identity)
    return []
  })
  const looks = (await Promise.all(found)).flat()
  if (looks.length === 0) return { mails: [], looks }
  const ids = looks.flatMap(({ inbox }) => inbox?.pending.map(({ id }) => id) ?? [])
  const fresh = (await loadNotices()).noteFound(memoryFile, { ids, kinds, peeks: toPeeks(looks) })
  const mails = looks.flatMap(({ inbox }) => {
    const from = inbox?.pending.filter(({ id }) => fresh.has(id)).map((message) => message.from) ?? []
    return inbox === null || from.length === 0 ? [] : [{ agent: inbox.agent, namespace: inbox.namespace, from }]
  })
  return { mails, looks }
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

/** @param {Identity} identity @param {Search['ask']} ask @returns {Promise<Look>} */
async function lookInto(identity, ask) {
  const at = Date.now()
  const [inbox] = await Promise.all([ask(identity), loadNotices()])
  return { identity, at, inbox }
}

/** For the next hook and for the status line. @param {Look[]} looks */
function toPeeks(looks) {
  const entries = looks.map(({ identity, at, inbox }) => {
    const { agent = '', namespace = '', pending = null } = inbox ?? {}
    return [toIdentityKey(identity), { at, new: pending?.length ?? -1, agent, namespace }]
  })
  return Object.fromEntries(entries)
}

/** @type {Promise<typeof import('./hook-notices.cjs')> | undefined} */
let notices

/**
 * What most hooks do not need, as they have nothing to say, is not loaded; and not before the request is on its way: while the
 * server thinks, there is time for it.
 */
function loadNotices() {
  notices ??= new Promise(setImmediate).then(() => require('./hook-notices.cjs'))
  return notices
}

/** @param {string} hookEventName @param {Mail[]} mails */
async function toNews(hookEventName, mails) {
  return toContext(hookEventName, (await loadNotices()).describeNews(mails))
}

/** @param {string} hookEventName @param {string} additionalContext */
function toContext(hookEventName, additionalContext) {
  return { hookSpecificOutput: { hookEventName, additionalContext } }
}

module.exports = { answerHook }
