import type { MessageState } from '../../domain/delivery.ts'
import type { ListedMessage } from '../../domain/message-list.ts'
import { State } from '../components/index.ts'

/** In the order in which a reader asks for them: what may need something first. */
const ORDER: readonly MessageState[] = ['expired', 'new', 'open', 'deferred', 'answered', 'done', 'resolved', 'unsent']

const KINDS: Record<MessageState, 'good' | 'warn' | 'bad' | 'off'> = {
  new: 'warn',
  open: 'off',
  deferred: 'off',
  answered: 'good',
  done: 'good',
  resolved: 'good',
  unsent: 'off',
  expired: 'bad',
}

/** How a state is called where it stands alone. */
export const STATE_WORDS: Record<MessageState, string> = {
  new: 'new',
  open: 'read, not settled',
  deferred: 'put off',
  answered: 'answered',
  done: 'done',
  resolved: 'resolved',
  unsent: 'taken back',
  expired: 'expired',
}

/** The same in a choice, with the word of agents and their tools where it is another one. */
export function nameState(state: MessageState): string {
  return STATE_WORDS[state] === state ? state : `${STATE_WORDS[state]} (${state})`
}

export function StateWord({ state }: { state: MessageState }) {
  return <State kind={KINDS[state]}>{STATE_WORDS[state]}</State>
}

/** `answered`, or of many `2 answered, 1 new`; with why what is new has not been announced. */
export function StatesOf({ message }: { message: ListedMessage }) {
  const states = ORDER.filter((state) => message.states[state])
  return (
    <span class="states">
      {states.map((state, index) => (
        <>
          {index > 0 && ', '}
          {message.recipients > 1 && `${message.states[state]} `}
          <StateWord state={state} />
          {state === 'new' && describeNew(message)}
        </>
      ))}
    </span>
  )
}

function describeNew({ held, unnotified }: ListedMessage) {
  const why = held > 0 ? 'held by the loop budget' : unnotified > 0 ? 'not announced' : ''
  return why && <span class="evidence"> · {why}</span>
}

/** Whether anything may still happen to it soon. */
export function isUnsettled({ states }: ListedMessage): boolean {
  return Boolean(states.new || states.open)
}

/** What live.js compares: while it is there the part is asked for again soon, and at once more often when it has changed. */
export function watchMark(messages: readonly ListedMessage[]): string | undefined {
  const waiting = messages.filter(isUnsettled)
  if (waiting.length === 0) return undefined
  return waiting
    .map(({ id, states, unnotified }) => `${id.slice(-6)}${Object.values(states).join('.')}.${unnotified}`)
    .join(' ')
}
