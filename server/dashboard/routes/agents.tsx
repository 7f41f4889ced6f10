import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { addAgent, deleteAgent, getAgentOf, listAgentsOf, renameMyAgent } from '../../domain/agents.ts'
import { listTokensOf } from '../../domain/tokens.ts'
import { readText } from '../fields.ts'
import type { DashboardDeps } from '../page.ts'
import { AgentPage, type AgentProps, AgentState } from '../pages/agent.tsx'
import { AgentsPage, type AgentsProps, AgentTable } from '../pages/agents.tsx'
import { AgentHello, TokenHello } from '../pages/hello.tsx'
import { FRAGMENT } from '../paths.ts'
import { getMember, type InNamespace, readQuery, tryForm } from './refusals.ts'

interface OfAgent {
  Params: { namespace: string; agent: string }
}

export const agentRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  app.get<InNamespace>('/n/:namespace/agents', async (request, reply) => {
    if (readQuery(request.query, FRAGMENT) === undefined) return await showAgents(request, reply)
    const props = await loadList(request)
    return await reply.fragment(<AgentTable request={request} {...props} />)
  })

  app.post<InNamespace>('/n/:namespace/agents', async (request, reply) => {
    const { namespace } = request.params
    const name = readText(request, 'name')
    const { refusal } = await tryForm(addAgent(request.person, { namespace, name }))
    if (refusal) return await showAgents(request, reply, { problem: { name, ...refusal } }, refusal.status)
    return reply.back(`/n/${namespace}/agents/${name}`, `${name} is added. Now make a token for it.`)
  })

  app.get<OfAgent>('/n/:namespace/agents/:agent', async (request, reply) => {
    const part = readQuery(request.query, FRAGMENT)
    if (part === undefined) return await showAgent(request, reply)
    const { namespace } = request.params
    const agent = await getAgentOf(request.person, request.params)
    const member = await getMember(request.person, namespace)
    if (part !== 'hello') return await reply.fragment(<AgentState request={request} member={member} agent={agent} />)
    const arrival = { agent, now: request.page.now, isPaused: member.pausedAt !== null }
    const tokenId = readQuery(request.query, 'token')
    // The agent's own page waits for it, whatever its token; the page of a token for that one.
    if (tokenId === undefined) return await reply.fragment(<AgentHello {...arrival} />)
    const { tokens } = await listTokensOf(request.person, { namespace, agent: agent.agent })
    return await reply.fragment(<TokenHello {...arrival} token={tokens.find(({ id }) => id === tokenId) ?? null} />)
  })

  app.post<OfAgent>('/n/:namespace/agents/:agent/rename', async (request, reply) => {
    const { namespace, agent } = request.params
    const newName = readText(request, 'name')
    const { refusal } = await tryForm(renameMyAgent(request.person, { namespace, agent, newName }))
    if (refusal) return await showAgent(request, reply, { problem: { name: newName, ...refusal } }, refusal.status)
    return reply.back(`/n/${namespace}/agents/${newName}`, `${agent} is called ${newName} from now on.`)
  })

  app.post<OfAgent>('/n/:namespace/agents/:agent/delete', async (request, reply) => {
    const { namespace, agent } = request.params
    await deleteAgent(request.person, { namespace, agent })
    return reply.back(`/n/${namespace}/agents`, `${agent} is deleted, and its tokens have ended.`)
  })
}

async function loadList(request: FastifyRequest<InNamespace>) {
  const { namespace } = request.params
  const q = readQuery(request.query, 'q') ?? ''
  const after = readQuery(request.query, 'after')
  const member = await getMember(request.person, namespace)
  const list = await listAgentsOf(request.person, { namespace, q, after })
  return { member, q, isFirstPage: after === undefined, ...list }
}

async function showAgents(
  request: FastifyRequest<InNamespace>,
  reply: FastifyReply,
  more: Pick<AgentsProps, 'problem'> = {},
  status = 200,
) {
  const list = await loadList(request)
  return await reply.html(<AgentsPage request={request} {...list} {...more} />, status)
}

async function showAgent(
  request: FastifyRequest<OfAgent>,
  reply: FastifyReply,
  more: Pick<AgentProps, 'problem'> = {},
  status = 200,
) {
  const { namespace } = request.params
  const member = await getMember(request.person, namespace)
  const agent = await getAgentOf(request.person, request.params)
  const { tokens, next } = await listTokensOf(request.person, { namespace, agent: agent.agent, state: 'active' })
  const props = { request, member, agent, tokens, hasMoreTokens: next !== null }
  return await reply.html(<AgentPage {...props} {...more} />, status)
}
