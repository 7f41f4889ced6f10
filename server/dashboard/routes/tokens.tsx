import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { getAgentOf, listAgentNames } from '../../domain/agents.ts'
import { type CreatedToken, createToken, listTokensOf, revokeMyToken, rotateMyToken } from '../../domain/tokens.ts'
import { PatchcordError } from '../../errors.ts'
import { readText } from '../fields.ts'
import type { DashboardDeps } from '../page.ts'
import { NewTokenPage, type NewTokenProps } from '../pages/new-token.tsx'
import { DEFAULT_LIFE, LIVES, OVERLAPS, type TokenFormProps, type TokenFormValues } from '../pages/token-form.tsx'
import { TOKEN_STATES, type TokenFilter, TokensPage, type TokensProps } from '../pages/tokens.tsx'
import { getMember, type InNamespace, type Refusal, readQuery, tryForm } from './refusals.ts'

/** Of more the name is typed. */
const AGENTS_TO_CHOOSE_MAX = 50

interface OfToken {
  Params: { namespace: string; id: string }
}

export const tokenRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  app.get<InNamespace>('/n/:namespace/tokens', (request, reply) => showTokens(request, reply))

  app.post<InNamespace>('/n/:namespace/tokens', async (request, reply) => {
    const { namespace } = request.params
    const values = readForm(request)
    const id = readText(request, 'id')
    const work = createFrom(request, values, id)
    const { value, refusal } = await tryForm(work, ['not_found'])
    if (value) return await showNew(request, reply, namespace, value, null)
    // Not to be told from a namespace that does not exist, for whoever is no member of it.
    await getMember(request.person, namespace)
    return await showTokens(request, reply, describeRefusal(refusal, values), refusal.status)
  })

  app.post<OfToken>('/n/:namespace/tokens/:id/rotate', async (request, reply) => {
    const { namespace, id } = request.params
    const overlapSeconds = readOverlap(request)
    const { value, refusal } = await tryForm(rotateMyToken(request.person, { namespace, id, overlapSeconds }), [])
    if (value)
      return await showNew(request, reply, namespace, value, {
        endsAt: value.old_ends_at,
        hasEnded: overlapSeconds === 0,
      })
    const notice = { title: 'Nothing was rotated', message: refusal.message }
    return await showTokens(request, reply, { notice }, refusal.status)
  })

  app.post<OfToken>('/n/:namespace/tokens/:id/revoke', async (request, reply) => {
    const { namespace, id } = request.params
    const { refusal } = await tryForm(revokeMyToken(request.person, { namespace, id }))
    if (!refusal) {
      const agent = readText(request, 'filter')
      const query = agent === '' ? '' : `?${new URLSearchParams({ agent })}`
      return reply.back(
        `/n/${namespace}/tokens${query}`,
        'The token is revoked: what used it is disconnected within a second.',
      )
    }
    const notice = { title: 'Nothing was changed', message: refusal.message }
    return await showTokens(request, reply, { notice }, refusal.status)
  })
}

function readForm(request: FastifyRequest): TokenFormValues {
  return { agent: readText(request, 'agent'), label: readText(request, 'label'), life: readText(request, 'life') }
}

async function createFrom(request: FastifyRequest<InNamespace>, values: TokenFormValues, id: string) {
  const { namespace } = request.params
  const life = LIVES.find(({ value }) => value === values.life)
  if (!life) throw new PatchcordError('invalid', 'A token ends after 7, 30, 90 or 365 days, or never.')
  if (id === '') throw new PatchcordError('invalid', 'The form was not whole.', { hint: 'Send it again.' })
  const { agent, label } = values
  return await createToken(request.person, { namespace, agent, label, expiresInSeconds: life.seconds, id })
}

function readOverlap(request: FastifyRequest): number {
  const overlap = OVERLAPS.find(({ value }) => value === readText(request, 'overlap'))
  if (overlap) return Number(overlap.value)
  throw new PatchcordError('invalid', 'The old token works no longer, or 10 minutes, 1 hour or 24 hours more.')
}

type Refused = Partial<Pick<TokensProps, 'notice' | 'isCreating'>> & {
  problem?: TokenFormProps['problem']
  values?: TokenFormValues
}

/** A conflict is the form that was sent before; what else is wrong belongs to a field, and what was typed stays. */
function describeRefusal({ code, message }: Refusal, values: TokenFormValues): Refused {
  if (code === 'conflict') return { notice: { title: 'No second token was made', message } }
  const field = code === 'not_found' ? 'agent' : 'label'
  return { values, isCreating: true, problem: { field, message } }
}

async function showNew(
  request: FastifyRequest,
  reply: FastifyReply,
  namespace: string,
  created: CreatedToken,
  old: NewTokenProps['old'],
) {
  const member = await getMember(request.person, namespace)
  const agent = await getAgentOf(request.person, { namespace, agent: created.agent })
  return await reply.html(<NewTokenPage {...{ request, member, created, agent, old }} />, 201)
}

async function showTokens(
  request: FastifyRequest<InNamespace>,
  reply: FastifyReply,
  { values, problem, ...more }: Refused = {},
  status = 200,
) {
  const { namespace } = request.params
  const member = await getMember(request.person, namespace)
  const filter = readFilter(request)
  const before = readQuery(request.query, 'before')
  const { agent, state, q } = filter
  const list = await listTokensOf(request.person, { namespace, state, q, before, ...(agent !== '' && { agent }) })
  const agents = await listAgentNames(request.person, { namespace, max: AGENTS_TO_CHOOSE_MAX })
  const form: TokenFormProps = {
    request,
    member,
    agents,
    values: values ?? { agent, label: '', life: DEFAULT_LIFE },
    ...(problem && { problem }),
  }
  const isCreating = readQuery(request.query, 'new') === '1'
  const facts = { request, member, filter, form, isFirstPage: before === undefined, hasAgents: agents?.length !== 0 }
  return await reply.html(<TokensPage {...facts} {...list} isCreating={isCreating} {...more} />, status)
}

function readFilter({ query }: FastifyRequest): TokenFilter {
  const state = TOKEN_STATES.find(({ value }) => value === readQuery(query, 'state'))?.value ?? 'active'
  return { agent: readQuery(query, 'agent') ?? '', state, q: readQuery(query, 'q') ?? '' }
}
