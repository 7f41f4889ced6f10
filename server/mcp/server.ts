import {
  type AuthInfo,
  type McpServerFactory,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerContext,
} from '@modelcontextprotocol/server'
import type { Identity, Scope } from '../db/scope.ts'
import { suggestNames } from '../domain/names.ts'
import type { Waiters } from '../wakes/waiters.ts'
import { cleanLabel } from './fence.ts'
import { INSTRUCTIONS } from './instructions.ts'
import { PROMPTS } from './prompts.ts'
import { toInputSchema, toOutputSchema } from './schema.ts'
import { MODERN_VERSIONS } from './shared.ts'
import { callTool, type Tool, type ToolAnswer, type ToolLog } from './tool.ts'
import { listAgentsTool } from './tools/agents.ts'
import { messageStatusTool, unsendTool } from './tools/delivery.ts'
import { inboxTool, waitForMessageTool } from './tools/inbox.ts'
import { recallTool, replyTool, sendMessageTool } from './tools/messages.ts'

const PROGRESS_MS = 15_000
/** Characters; Claude Code cuts other results much earlier, and an inbox is paged by tokens already. */
const RESULT_CHARACTERS_MAX = 200_000
/** Lists and instructions are the same for every caller and change with a deployment only. */
const LISTS_CACHE = { ttlMs: 300_000, cacheScope: 'public' } as const

/** In the order in which clients show them. */
const TOOLS: Tool[] = [
  inboxTool,
  sendMessageTool,
  replyTool,
  waitForMessageTool,
  recallTool,
  unsendTool,
  messageStatusTool,
  listAgentsTool,
]

/** The tools as `tools/list` gives them, built once: schemas are the expensive part of a request. */
export const toolDefinitions = TOOLS.map((tool) => ({
  name: tool.name,
  title: tool.title,
  description: tool.description,
  inputSchema: toInputSchema(tool.input) as { type: 'object' },
  outputSchema: toOutputSchema(tool.output) as { type: 'object' },
  annotations: tool.annotations,
  _meta: {
    ...(tool.isAlwaysLoaded && { 'anthropic/alwaysLoad': true }),
    'anthropic/maxResultSizeChars': RESULT_CHARACTERS_MAX,
  },
}))

const promptDefinitions = PROMPTS.map(({ name, title, description }) => ({ name, title, description }))

/** No elicitation, so nothing to validate; the SDK's own validator takes milliseconds to make. */
const noValidator = {
  getValidator: () => {
    throw new Error('this server asks clients for nothing')
  },
}

export interface McpServerDeps {
  scopeFor(caller: { tokenHash: string }): Scope
  waiters: Waiters
  version: string
  log: ToolLog
}

/** Who calls, as the endpoint found before any of this runs. */
export interface McpCaller {
  identity: Identity
  tokenHash: string
}

/** Who sent a message. The endpoint puts it into the `authInfo` that goes with that message, and a handler finds it there. */
export interface McpSender {
  caller: McpCaller
  /** The User-Agent; '' where there is none. */
  userAgent: string
}

export function toAuthInfo(sender: McpSender): AuthInfo {
  // The token itself goes no further than the endpoint's authentication.
  return { token: '', clientId: sender.caller.identity.agentId, scopes: [], extra: { ...sender } }
}

function senderOf({ http }: ServerContext): McpSender {
  if (!http?.authInfo?.extra) throw new Error('a message came without its sender')
  return http.authInfo.extra as unknown as McpSender
}

/** Whether a parsed HTTP body calls a tool whose answer may take minutes (a batch of the 2025 era counts if one does). */
export function isLongCall(body: unknown): boolean {
  return [body].flat().some((message) => {
    const { method, params } = (message ?? {}) as { method?: unknown; params?: { name?: unknown } }
    return method === 'tools/call' && TOOLS.some((tool) => tool.isLong && tool.name === params?.name)
  })
}

/** Makes servers of either era. None knows a caller: each message brings its sender, so that one server may serve many. */
export function createServerFactory(deps: McpServerDeps): McpServerFactory {
  return ({ era }) => {
    const server = new Server(
      { name: 'patchcord', title: 'Patchcord', version: deps.version },
      {
        instructions: INSTRUCTIONS,
        capabilities: { tools: { listChanged: false }, prompts: { listChanged: false } },
        cacheHints: { 'tools/list': LISTS_CACHE, 'prompts/list': LISTS_CACHE, 'server/discover': LISTS_CACHE },
        jsonSchemaValidator: noValidator,
        ...(era === 'modern' && { supportedProtocolVersions: MODERN_VERSIONS }),
      },
    )
    server.setRequestHandler('tools/list', () => ({ tools: toolDefinitions }))
    server.setRequestHandler('prompts/list', () => ({ prompts: promptDefinitions }))
    server.setRequestHandler('prompts/get', ({ params }) => getPrompt(params.name))
    server.setRequestHandler('tools/call', ({ params }, context) => call(deps, params, context))
    return server
  }
}

async function call(
  deps: McpServerDeps,
  params: { name: string; arguments?: Record<string, unknown> | undefined },
  context: ServerContext,
): Promise<ToolAnswer> {
  const tool = getTool(params.name)
  const { caller: who, userAgent } = senderOf(context)
  const { _meta, signal, notify } = context.mcpReq
  const token = _meta?.progressToken
  const tell = (progress: number) =>
    notify({ method: 'notifications/progress', params: { progressToken: token, progress, message: tool.title } })
  const stop = tool.isLong && token !== undefined ? startProgress(tell, signal) : () => {}
  const caller = { scope: deps.scopeFor(who), me: who.identity, waiters: deps.waiters, userAgent, signal }
  try {
    return await callTool(tool, params.arguments, caller, deps.log)
  } finally {
    stop()
  }
}

/** Seconds since the start, at once and then every 15 s: Claude Code gives up a call that is silent for 5 minutes. */
function startProgress(notify: (seconds: number) => Promise<void>, signal: AbortSignal): () => void {
  const startMs = performance.now()
  const stop = () => clearInterval(timer)
  // A notification fails only when the client is gone, and then the call is aborted anyway.
  const tell = () => void notify(Math.round((performance.now() - startMs) / 1000)).catch(stop)
  const timer = setInterval(tell, PROGRESS_MS)
  signal.addEventListener('abort', stop, { once: true })
  tell()
  return stop
}

function getTool(name: string): Tool {
  const tool = TOOLS.find((each) => each.name === name)
  if (tool) return tool
  throw unknownName('tool', name, TOOLS)
}

function getPrompt(name: string) {
  const prompt = PROMPTS.find((each) => each.name === name)
  if (!prompt) throw unknownName('prompt', name, PROMPTS)
  const { description, text } = prompt
  return { description, messages: [{ role: 'user' as const, content: { type: 'text' as const, text } }] }
}

function unknownName(what: string, name: string, known: { name: string }[]): ProtocolError {
  const names = known.map((each) => each.name)
  const nearest = suggestNames(name, names)
  const hint = nearest.length > 0 ? `Did you mean ${nearest.join(' or ')}?` : `There are ${names.join(', ')}.`
  return new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown ${what} "${cleanLabel(name)}". ${hint}`)
}
