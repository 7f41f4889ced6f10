import { Server as McpServer } from '@modelcontextprotocol/sdk/server/index.js'
import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js'
import {
  CallToolRequestSchema,
  ErrorCode,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListToolsRequestSchema,
  McpError,
  type ServerNotification,
  type ServerRequest,
} from '@modelcontextprotocol/sdk/types.js'
import type { Server } from './api.ts'
import { CommandError } from './errors.ts'
import { Host } from './host.ts'
import { createThrottle } from './throttle.ts'
import { callMcp, RpcError } from './upstream.ts'

/** A host waits for `initialize`: a server that does not answer in time costs us its instructions, nothing else. */
const START_MS_MAX = 3_000
/** What a person can follow; a server that floods us must not drown the host. */
const PROGRESS_GAP_MS = 100
/** The part of the time for an end in which calls may still be answered; then there is an error to be told. */
const CALLS_SHARE = 0.8
const CLIENT = {
  protocolVersion: '2025-11-25',
  capabilities: {},
  clientInfo: { name: 'patchcord-bridge', version: '1' },
}

export interface BridgeOptions {
  server: Server
  version: string
  log(line: string): void
}

export interface Bridge {
  /** Resolves when the connection to the host is over, whoever ended it, with the fault that ended it if there was one. */
  closed: Promise<Error | null>
  /** Resolves when the calls that are under way are answered, with an error where the time is over, and the host has read it. */
  finish(withinMs: number): Promise<void>
  close(): Promise<void>
}

/** The host has closed its end, and the server took too long. */
class CallCutOff extends CommandError {
  constructor() {
    super('cut_off', 'The host ended the connection before the server had answered.', {
      hint: 'What came of the call is not known: the inbox and recall show what was sent.',
    })
  }
}

type Extra = RequestHandlerExtra<ServerRequest, ServerNotification>
type Params = Record<string, unknown> | undefined

/** Speaks MCP on stdin and stdout until it is closed, and asks the server for every answer. */
export async function startBridge({ server, version, log }: BridgeOptions): Promise<Bridge> {
  const running = new Set<Promise<unknown>>()
  const ending = new AbortController()
  const instructions = await readInstructions(server, log)
  const mcp = new McpServer(
    { name: 'patchcord', title: 'Patchcord', version },
    { capabilities: { tools: {}, prompts: {} }, ...(instructions === undefined ? {} : { instructions }) },
  )
  const call = async (method: string, params: Params, extra: Extra) => {
    const answer = forward(server, method, params, { ...extra, signal: AbortSignal.any([extra.signal, ending.signal]) })
    running.add(answer)
    try {
      return await answer
    } finally {
      running.delete(answer)
    }
  }
  const pass = (method: string) => async (request: { params?: Params }, extra: Extra) =>
    await call(method, request.params, extra)
  mcp.setRequestHandler(ListToolsRequestSchema, async (request, extra) => {
    const result = await pass('tools/list')(request, extra)
    return result as { tools: [] }
  })
  mcp.setRequestHandler(ListPromptsRequestSchema, async (request, extra) => {
    const result = await pass('prompts/list')(request, extra)
    return result as { prompts: [] }
  })
  mcp.setRequestHandler(GetPromptRequestSchema, async (request, extra) => {
    const result = await pass('prompts/get')(request, extra)
    return result as { messages: [] }
  })
  mcp.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    try {
      return await call('tools/call', params, extra)
    } catch (error) {
      // What a model can act on, it must see: a server that is down is an answer, not a fault of the protocol.
      if (error instanceof CommandError) return toToolError(error)
      throw error
    }
  })
  const host = new Host({ input: process.stdin, output: process.stdout, log })
  const closed = watchEnd(mcp, host, log)
  await mcp.connect(host)
  return {
    closed,
    async finish(withinMs) {
      // What has been read is being answered by then.
      await new Promise((resolve) => setImmediate(resolve))
      const timer = setTimeout(() => ending.abort(new CallCutOff()), withinMs * CALLS_SHARE)
      await Promise.allSettled([...running])
      clearTimeout(timer)
      // Their answers are written in the turn after.
      await new Promise((resolve) => setImmediate(resolve))
      await host.drain(withinMs)
    },
    close: () => mcp.close(),
  }
}

/** A fault of the host's that ends the connection is told by whoever waits for the end; every other one at once. */
function watchEnd(mcp: McpServer, host: Host, log: (line: string) => void): Promise<Error | null> {
  let fault: Error | null = null
  host.onerror = (error) => {
    fault = error
  }
  mcp.onerror = (error) => {
    if (error !== fault) log(error.message)
  }
  return new Promise((resolve) => {
    mcp.onclose = () => resolve(fault)
  })
}

async function readInstructions(server: Server, log: (line: string) => void): Promise<string | undefined> {
  try {
    const result = await callMcp(server, 'initialize', CLIENT, { signal: AbortSignal.timeout(START_MS_MAX) })
    return typeof result.instructions === 'string' ? result.instructions : undefined
  } catch (error) {
    log(`${(error as Error).message} Calls are passed on all the same.`)
    return undefined
  }
}

/** The host's own progress token goes along, so its notifications come back as they are, ten a second; the last one always. */
async function forward(server: Server, method: string, params: Params, extra: Extra): Promise<Record<string, unknown>> {
  const progress = createThrottle<ServerNotification>(PROGRESS_GAP_MS, (notification) => {
    // A host that is gone hears nothing, and ends us otherwise.
    void extra.sendNotification(notification).catch(() => {})
  })
  try {
    return await callMcp(server, method, params, {
      signal: extra.signal,
      onNotification: (notification) => {
        if (notification.method === 'notifications/progress') progress.push(notification as ServerNotification)
      },
    })
  } catch (thrown) {
    const error = extra.signal.reason instanceof CallCutOff ? extra.signal.reason : thrown
    if (error instanceof RpcError) throw toMcpError(error)
    if (error instanceof CommandError && method !== 'tools/call') {
      throw new McpError(ErrorCode.InternalError, [error.message, error.hint].filter(Boolean).join(' '))
    }
    throw error
  } finally {
    // Before the answer: a host forgets a call's progress with it.
    progress.flush()
  }
}

/** McpError would put its own words before the message. */
function toMcpError({ code, message, data }: RpcError): Error {
  return Object.assign(new Error(message), { code, ...(data === undefined ? {} : { data }) })
}

function toToolError({ code, message, hint }: CommandError) {
  const text = [message, ...(hint === undefined ? [] : [hint])].join(' ')
  return {
    isError: true,
    content: [{ type: 'text' as const, text }],
    _meta: { 'patchcord/error': { code, message, ...(hint === undefined ? {} : { hint }) } },
  }
}
