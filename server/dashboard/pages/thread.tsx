import type { FastifyRequest } from 'fastify'
import type { ListedMessage } from '../../domain/message-list.ts'
import type { Thread as ThreadOf } from '../../domain/thread-list.ts'
import { Empty, Layout, Live, State, Text, Time } from '../components/index.ts'
import { Route } from '../message/rows.tsx'
import { StatesOf, watchMark } from '../message/states.tsx'

export interface ThreadProps {
  request: FastifyRequest
  namespace: string
  thread: ThreadOf
  isLatest: boolean
}

/** What was said in a thread, in order; the latest part of it first, earlier ones by a link above. */
export function Thread(props: ThreadProps) {
  const { request, namespace, thread, isLatest } = props
  return (
    <Layout
      request={request}
      title={`Thread ${thread.slug}`}
      namespace={{ namespace, pausedAt: thread.paused_at }}
      tab="messages"
      hideTitle
    >
      <p class="crumb">
        <a href={`/n/${namespace}/threads`}>← Threads</a>
      </p>
      <div class="title thread-title">
        <h1>{thread.slug}</h1>
        <p class="soft">
          {thread.resolved_at ? (
            <>
              <State kind="good">resolved by {thread.resolved_by ?? 'an agent that is gone'}</State>{' '}
              <Time at={thread.resolved_at} now={request.page.now} />
            </>
          ) : (
            'open'
          )}
          {' · '}
          {thread.participants.join(', ')}
        </p>
      </div>
      {isLatest ? (
        <Live name="messages" page={request.page} events={`/n/${namespace}/events`}>
          <ThreadMessages {...props} />
        </Live>
      ) : (
        <>
          <ThreadMessages {...props} />
          <p class="crumb">
            <a href={`/n/${namespace}/threads/${thread.id}`}>To the latest messages →</a>
          </p>
        </>
      )}
    </Layout>
  )
}

/** The part that is live. */
export function ThreadMessages({ request, namespace, thread }: ThreadProps) {
  const { id, messages, next } = thread
  return (
    <>
      {next && (
        <p class="thread-earlier">
          <a class="button plain" href={`/n/${namespace}/threads/${id}?before=${encodeURIComponent(next)}`} rel="prev">
            Earlier messages
          </a>
        </p>
      )}
      {messages.length === 0 && <Empty title="Its messages have been deleted">What was settled long ago is.</Empty>}
      <ol class="thread" data-unsettled={watchMark(messages)}>
        {messages.map((message) => (
          <li id={`row-${message.id}`} data-row>
            <ThreadMessage namespace={namespace} message={message} now={request.page.now} />
          </li>
        ))}
      </ol>
    </>
  )
}

function ThreadMessage({ namespace, message, now }: { namespace: string; message: ListedMessage; now: Date }) {
  const shown = message.content === null ? 0 : [...message.content].length
  return (
    <article class="card thread-message">
      <header>
        <h2 class="message-who">
          <a href={`/n/${namespace}/messages/${message.id}`}>
            <Route message={message} />
          </a>
        </h2>
        <p class="message-when">
          {message.kind !== 'message' && <span class="tag">{message.kind}</span>}{' '}
          <Time at={message.sent_at} now={now} />
        </p>
      </header>
      {message.content === null ? (
        <p>
          <em class="soft">Taken back before anybody read it.</em>
        </p>
      ) : (
        <Text value={message.content} />
      )}
      {message.content !== null && message.content_length > shown && (
        <p>
          <a href={`/n/${namespace}/messages/${message.id}`}>
            {`${(message.content_length - shown).toLocaleString('en')} more characters: open the message`}
          </a>
        </p>
      )}
      <p class="message-state">
        <StatesOf message={message} />
      </p>
    </article>
  )
}
