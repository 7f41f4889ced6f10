import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import type { TokenCard } from '../../domain/tokens.ts'
import { Choice, Confirm, Table, Text, Time } from '../components/index.ts'
import { OVERLAPS } from './token-form.tsx'
import { stateOf, TokenState } from './token-state.tsx'
import { isAdmin } from './words.ts'

interface TokenTableProps {
  request: FastifyRequest
  member: Member
  tokens: TokenCard[]
  /** Its name need not be said in each row. */
  isOfOneAgent?: boolean
  /** The agent whose tokens are looked at, where a change comes back to; empty for all. */
  filterAgent: string
}

/** Tokens with their state, and for admins what can be done to each. */
export function TokenTable(props: TokenTableProps) {
  const { request, member, isOfOneAgent } = props
  const { now } = request.page
  const replaced = new Set(props.tokens.filter((token) => token.revoked_at === null).map((token) => token.rotated_from))
  const rows = props.tokens.map((token) => ({
    key: token.id,
    cells: [
      <Text value={token.label} inline />,
      ...(isOfOneAgent
        ? []
        : [
            <a class="mono" href={`/n/${member.namespace}/agents/${token.agent}`}>
              {token.agent}
            </a>,
          ]),
      <TokenState token={token} isReplaced={replaced.has(token.id)} now={now} />,
      <Time at={token.created_at} now={now} />,
      ...(isAdmin(member) ? [<Actions {...props} token={token} />] : []),
    ],
  }))
  const columns = [
    { label: 'Label' },
    ...(isOfOneAgent ? [] : [{ label: 'Agent' }]),
    { label: 'State' },
    { label: 'Made' },
    ...(isAdmin(member) ? [{ label: 'Actions', isQuiet: true }] : []),
  ]
  return <Table caption="Tokens, the newest first" columns={columns} rows={rows} />
}

function Actions({ request, member, token, filterAgent }: TokenTableProps & { token: TokenCard }) {
  const { csrf, now } = request.page
  const state = stateOf(token, now)
  if (state === 'revoked' || state === 'expired') return null
  const path = `/n/${member.namespace}/tokens/${token.id}`
  const name = `${token.label} of ${token.agent}`
  return (
    <div class="actions">
      <Confirm
        summary="Rotate"
        button="Rotate"
        label={`Rotate ${name}`}
        action={`${path}/rotate`}
        csrf={csrf}
        group="actions"
        kind="primary"
        inputs={
          <Choice
            id={`overlap-${token.id}`}
            name="overlap"
            label="The old token works"
            options={OVERLAPS}
            value={OVERLAPS[1].value}
          />
        }
      >
        <p>
          Makes a new token of <code>{token.agent}</code>, which is shown once, with the same label and the same length
          of life.
        </p>
      </Confirm>
      <Confirm
        summary="Revoke"
        button="Revoke now"
        label={`Revoke ${name}`}
        action={`${path}/revoke`}
        csrf={csrf}
        fields={{ filter: filterAgent }}
        group="actions"
      >
        <p>
          <code>{token.agent}</code> is disconnected where it uses “
          <Text value={token.label} inline />” within a second, and stays so until it gets another token. This cannot be
          undone.
        </p>
      </Confirm>
    </div>
  )
}
