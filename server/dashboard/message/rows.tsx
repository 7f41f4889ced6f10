import type { ListedMessage } from '../../domain/message-list.ts'
import { Text, Time } from '../components/index.ts'
import { StatesOf, watchMark } from './states.tsx'

export interface RowsProps {
  namespace: string
  messages: readonly ListedMessage[]
  now: Date
}

/** Messages one below the other, each a link to its story. */
export function MessageRows({ namespace, messages, now }: RowsProps) {
  return (
    <ol class="messages" data-unsettled={watchMark(messages)}>
      {messages.map((message) => (
        <li id={`row-${message.id}`} data-row>
          <MessageRow namespace={namespace} message={message} now={now} />
        </li>
      ))}
    </ol>
  )
}

function MessageRow({ namespace, message, now }: { namespace: string; message: ListedMessage; now: Date }) {
  return (
    <article class="message-row">
      <h2 class="message-who">
        <a href={`/n/${namespace}/messages/${message.id}`}>
          <Route message={message} />
        </a>
      </h2>
      <p class="message-when">
        <Time at={message.sent_at} now={now} />
      </p>
      <p class="message-preview">
        <Preview message={message} />
      </p>
      <p class="message-state">
        <StatesOf message={message} />
      </p>
      <Tags namespace={namespace} message={message} />
    </article>
  )
}

/** `alice → bob, carol and 3 more` */
export function Route({ message }: { message: ListedMessage }) {
  const { from, to, recipients } = message
  const more = recipients - to.length
  return (
    <>
      {from}
      <span class="arrow" aria-hidden="true">
        {' → '}
      </span>
      <span class="sr"> to </span>
      {to.join(', ')}
      {more > 0 && ` and ${more} more`}
    </>
  )
}

/** The beginning of the text; of what was taken back unread, that it was. */
export function Preview({ message }: { message: ListedMessage }) {
  if (message.content === null) return <em class="soft">Taken back before anybody read it.</em>
  const isCut = message.content_length > [...message.content].length
  return (
    <>
      <Text value={message.content} inline />
      {isCut && '…'}
    </>
  )
}

function Tags({ namespace, message }: { namespace: string; message: ListedMessage }) {
  const { kind, urgency, thread, thread_id: threadId } = message
  if (kind === 'message' && urgency === 'normal' && !thread) return null
  return (
    <p class="message-tags">
      {kind !== 'message' && <span class="tag">{kind === 'expired' ? 'notice: expired' : kind}</span>}
      {urgency === 'urgent' && <span class="tag urgent">urgent</span>}
      {urgency === 'fyi' && <span class="tag">fyi</span>}
      {thread && threadId && (
        <a class="tag in-thread" href={`/n/${namespace}/threads/${threadId}`}>
          <span class="sr">Thread </span>
          {thread}
        </a>
      )}
    </p>
  )
}
