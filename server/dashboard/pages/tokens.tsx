import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import type { TokenCard } from '../../domain/tokens.ts'
import { Disclosure } from '../components/disclosure.tsx'
import { Filters } from '../components/filters.tsx'
import { ButtonLink, Choice, Empty, Field, Layout, Notice, Pager } from '../components/index.ts'
import { TokenForm, type TokenFormProps } from './token-form.tsx'
import { TokenTable } from './token-table.tsx'
import { isAdmin } from './words.ts'

export const TOKEN_STATES = [
  { value: 'active', label: 'active' },
  { value: 'ended', label: 'ended' },
  { value: 'all', label: 'active and ended' },
] as const

export interface TokenFilter {
  agent: string
  state: (typeof TOKEN_STATES)[number]['value']
  q: string
}

export interface TokensProps {
  request: FastifyRequest
  member: Member
  tokens: TokenCard[]
  next: string | null
  filter: TokenFilter
  isFirstPage: boolean
  hasAgents: boolean
  form: TokenFormProps
  /** The form of a new token stands open. */
  isCreating: boolean
  /** What was refused that belongs to no field, and what to do. */
  notice?: { title: string; message: string }
}

/** Who may enter as whom? */
export function TokensPage(props: TokensProps) {
  const { request, member, tokens, notice } = props
  const isEmpty = tokens.length === 0 && props.isFirstPage
  // Who came to make a token has filtered nothing; the agent in the address is the form's.
  const isFormAlone = isEmpty && props.isCreating && props.hasAgents && isAdmin(member)
  return (
    <Layout request={request} namespace={member} tab="tokens" title="Tokens" action={<Create {...props} />}>
      {notice && (
        <Notice kind="bad" title={notice.title}>
          <p>{notice.message}</p>
        </Notice>
      )}
      {(!isEmpty || (isFiltered(props.filter) && !isFormAlone)) && <FilterForm {...props} />}
      {isEmpty ? (
        !isFormAlone && <NoTokens {...props} />
      ) : (
        <TokenTable request={request} member={member} tokens={tokens} filterAgent={props.filter.agent} />
      )}
      <Pager next={pathOf(props, props.next)} first={props.isFirstPage ? null : pathOf(props, '')} />
    </Layout>
  )
}

function Create({ member, hasAgents, isCreating, form }: TokensProps) {
  if (!isAdmin(member) || !hasAgents) return null
  return (
    <Disclosure summary="New token" kind="primary" isOpen={isCreating} id="new">
      <TokenForm {...form} />
    </Disclosure>
  )
}

export function isFiltered({ agent, state, q }: TokenFilter): boolean {
  return agent !== '' || q !== '' || state !== 'active'
}

function pathOf({ member, filter }: TokensProps, before: string | null): string | null {
  if (before === null) return null
  const entries = Object.entries({ ...filter, before }).filter(([, value]) => value !== '')
  return `/n/${member.namespace}/tokens?${new URLSearchParams(entries)}`
}

function FilterForm({ member, filter }: TokensProps) {
  return (
    <Filters action={`/n/${member.namespace}/tokens`} label="Filter tokens" isFiltered={isFiltered(filter)}>
      <Field id="filter-agent" name="agent" label="Agent" type="search" value={filter.agent} mono />
      <Choice id="filter-state" name="state" label="State" options={TOKEN_STATES} value={filter.state} />
      <Field id="filter-q" name="q" label="Text in the label" type="search" value={filter.q} maxLength={80} />
    </Filters>
  )
}

function NoTokens({ member, hasAgents, filter }: TokensProps) {
  if (isFiltered(filter)) {
    return (
      <Empty title="No token is like this">
        <p>Change the filter, or clear it to see all that are active.</p>
      </Empty>
    )
  }
  if (!hasAgents) {
    return (
      <Empty title="Add an agent first">
        <p>A token is what one agent proves itself with, so there must be an agent to make it for.</p>
        <ButtonLink href={`/n/${member.namespace}/agents`} kind="primary">
          To the agents
        </ButtonLink>
      </Empty>
    )
  }
  return (
    <Empty title="No active token">
      <p>
        {isAdmin(member)
          ? 'Make one above: the next page shows it once, with what to paste into each client.'
          : 'No agent can enter until an owner or an admin makes a token for it.'}
      </p>
    </Empty>
  )
}
