/** What hooks say: facts made of counts and names that pass the pattern, never a word of a message, and no orders. */
import { isName } from './text.mjs'

const NAMES_MAX = 5

/**
 * @typedef {{ agent: string, namespace: string, from: unknown[] }} Mail new messages of one identity, by their senders
 * @typedef {'server' | 'token'} Untrusted nothing of this server, or not this token of it
 */

/** `2 new messages for backend@acme, from alice, bob` @param {Mail} mail */
function describeMail({ agent, namespace, from }) {
  const names = [...new Set(from.map((name) => (isName(name) ? name : 'unknown')))]
  const senders = names.slice(0, NAMES_MAX).join(', ') + (names.length > NAMES_MAX ? ' and others' : '')
  return `${from.length} new message${from.length === 1 ? '' : 's'} for ${agent}@${namespace}, from ${senders}`
}

/** @param {Mail[]} mails none of them empty */
export function describeNews(mails) {
  return `Patchcord: ${mails.map(describeMail).join('; ')}. The inbox tool shows the text.`
}

/** Why a turn does not end yet. @param {Mail[]} mails none of them empty */
export function describeUnread(mails) {
  return `Patchcord: ${mails.map(describeMail).join('; ')}, not read yet. The inbox tool shows the text. Each message is mentioned here once; what is not read now stays in the inbox.`
}

/** @param {{ agent: string, namespace: string, isWakeable: boolean, client: string }} identity */
export function describeIdentity({ agent, namespace, isWakeable, client }) {
  const how = client === 'claude-code' ? LISTENERS : ''
  return `Patchcord: this session is the agent ${agent}@${namespace}, ${isWakeable ? 'wakeable' : `not wakeable yet${how}`}.`
}

const LISTENERS =
  " (the plugin's listener starts by itself in an interactive session; /patchcord:subscribe starts one elsewhere)"

/** @param {Untrusted} what @param {string} client */
export function describeUntrusted(what, client) {
  const byHand = client === 'claude-code' ? '/patchcord:subscribe once or patchcord connect' : 'patchcord connect'
  return `Patchcord: ${what} not trusted yet: run ${byHand}`
}

/**
 * @param {string} own version of this plugin @param {string | null} server
 * @returns {string | null} null: the plugin is not older than the server, by its first two numbers
 */
export function describeVersions(own, server) {
  if (server === null) return null
  const [major = 0, minor = 0] = own.split('.').map(Number)
  const [serverMajor = 0, serverMinor = 0] = server.split('.').map(Number)
  if (serverMajor < major || (serverMajor === major && serverMinor <= minor)) return null
  return `The Patchcord plugin of this session (${own}) is older than the server (${server}); the user can update it and restart the session.`
}
