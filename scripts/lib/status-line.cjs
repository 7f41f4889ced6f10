/** The text of the status line. */

const { isRecord } = require('./basics.cjs')
const { toLabel } = require('./config.cjs')
const { toIdentityKey } = require('./identity.cjs')
const { discoverIdentities } = require('./mcp-json.cjs')
const { prepareRuntimeFolder, readMemory, readStatus, toMemoryFile } = require('./runtime-folder.cjs')

const IDENTITIES_MAX = 4

/**
 * @param {Record<string, unknown>} input what Claude Code tells a status line
 * @param {import('./config.cjs').Settings} settings
 * @returns {string} empty: this project has no agent
 */
function describeStatus(input, { pair, lookup, runtimeFolders }) {
  const project = isRecord(input.workspace) ? input.workspace.project_dir : undefined
  const folder = [project, input.cwd].find((path) => typeof path === 'string' && path !== '') ?? process.cwd()
  const { identities } = discoverIdentities({ folder: String(folder), pair, lookup })
  if (identities.length === 0) return ''
  const runtime = prepareRuntimeFolder(runtimeFolders)
  const { peeks } = readMemory(toMemoryFile(runtime, toLabel(input.session_id)))
  const parts = identities
    .slice(0, IDENTITIES_MAX)
    .map((identity) => describeIdentity(readStatus(runtime, identity), peeks[toIdentityKey(identity)]))
  return parts.join(' | ')
}

/**
 * The count of whoever has looked last: a listener does not hear of messages being read, a hook does.
 * @param {import('./runtime-folder.cjs').ReadStatus | null} status
 * @param {import('./runtime-folder.cjs').Peek | undefined} peek
 */
function describeIdentity(status, peek) {
  const isPeek = peek !== undefined && peek.new >= 0
  const known = isPeek && peek.at > (status?.updatedAtMs ?? 0) ? peek : status
  if (known === null) return 'patchcord · not wakeable'
  // What a listener knew that has ended is old.
  const count = known === status && !status?.isLive ? [] : [`${known.new} new`]
  const reach = status?.isLive ? 'wakeable' : 'not wakeable'
  return [`${known.agent}@${known.namespace}`, ...count, reach].join(' · ')
}

module.exports = { describeStatus }
