import assert from 'node:assert/strict'
import { callTool, type ModelReply, type ModelRequest } from './model.ts'

/** The skill `/patchcord:subscribe`, as a model follows it. */

/** By this its text is known. */
export const SUBSCRIBE_SKILL = /`timeout_ms`: `1800000`/

/** What the skill says, with a shorter watch. */
export function armListener({ text }: ModelRequest, timeoutMs: number): ModelReply {
  const command = /`(node "[^"`]+\/scripts\/subscribe\.mjs")`/.exec(text)?.[1]
  assert.ok(command, `the skill names the command: ${text}`)
  assert.match(text, /`patchcord messages`/)
  return callTool('Monitor', { command, description: 'patchcord messages', timeout_ms: timeoutMs })
}
