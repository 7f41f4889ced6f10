import type { TokenCard } from '../../domain/tokens.ts'
import { State, Time } from '../components/index.ts'

export type TokenStateName = 'active' | 'banned' | 'revoked' | 'expired'

/** What a token is worth now. */
export function stateOf(token: TokenCard, now: Date): TokenStateName {
  if (token.revoked_at !== null) return 'revoked'
  if (token.expires_at !== null && new Date(token.expires_at) <= now) return 'expired'
  if (token.banned_until !== null && new Date(token.banned_until) > now) return 'banned'
  return 'active'
}

/** `active · last used 3 min ago · ends in 29 days`: the state in words, with its evidence. */
export function TokenState(props: { token: TokenCard; now: Date; isReplaced?: boolean }) {
  const { token, now, isReplaced = false } = props
  const state = stateOf(token, now)
  return (
    <span class="reach">
      <State kind={({ active: 'good', banned: 'warn', revoked: 'off', expired: 'off' } as const)[state]}>{state}</State>
      <span class="evidence">
        {state === 'banned' && token.banned_until && (
          <>
            {' until '}
            <Time at={token.banned_until} now={now} />
          </>
        )}
        {state === 'revoked' && token.revoked_at && (
          <>
            {' '}
            <Time at={token.revoked_at} now={now} />
          </>
        )}
        {' · '}
        {token.last_used_at ? (
          <>
            last used <Time at={token.last_used_at} now={now} />
          </>
        ) : (
          'never used'
        )}
        <End token={token} state={state} now={now} isReplaced={isReplaced} />
      </span>
    </span>
  )
}

function End(props: { token: TokenCard; state: TokenStateName; now: Date; isReplaced: boolean }) {
  const { token, state, now, isReplaced } = props
  if (state === 'revoked') return null
  if (token.expires_at === null) return <> · never ends</>
  return (
    <>
      {isReplaced ? ' · replaced, ' : ' · '}
      {state === 'expired' ? 'ended ' : 'ends '}
      <Time at={token.expires_at} now={now} />
    </>
  )
}
