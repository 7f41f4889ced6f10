import type { FastifyRequest } from 'fastify'
import type { ListedThread } from '../../domain/thread-list.ts'
import { Empty, Layout, Live, Pager, State, Time } from '../components/index.ts'
import { Preview } from '../message/rows.tsx'
import { MessageViews } from '../message/views.tsx'

export interface ThreadsProps {
  request: FastifyRequest
  namespace: string
  list: { threads: ListedThread[]; next: string | null; paused_at: string | null }
  isFirst: boolean
}

/** Threads, those with the latest message first. */
export function Threads(props: ThreadsProps) {
  const { request, namespace, list, isFirst } = props
  return (
    <Layout request={request} title="Threads" namespace={{ namespace, pausedAt: list.paused_at }} tab="messages">
      <MessageViews namespace={namespace} view="threads" />
      {isFirst ? (
        <Live name="list" page={request.page} events={`/n/${namespace}/events`} rows="thread">
          <ThreadList {...props} />
        </Live>
      ) : (
        <ThreadList {...props} />
      )}
    </Layout>
  )
}

/** The part that is live. */
export function ThreadList({ request, namespace, list, isFirst }: ThreadsProps) {
  const path = `/n/${namespace}/threads`
  const next = list.next && `${path}?before=${encodeURIComponent(list.next)}`
  if (list.threads.length === 0) return <NoThreads />
  return (
    <>
      <ol class="messages">
        {list.threads.map((thread) => (
          <li id={`row-${thread.id}`} data-row>
            <ThreadRow namespace={namespace} thread={thread} now={request.page.now} />
          </li>
        ))}
      </ol>
      <Pager next={next} first={isFirst ? null : path} label="Pages of threads" />
    </>
  )
}

function ThreadRow({ namespace, thread, now }: { namespace: string; thread: ListedThread; now: Date }) {
  const { latest } = thread
  return (
    <article class="message-row">
      <h2 class="message-who">
        <a href={`/n/${namespace}/threads/${thread.id}`}>{thread.slug}</a>
      </h2>
      <p class="message-when">
        <Time at={thread.last_message_at} now={now} />
      </p>
      <p class="message-preview">
        {latest ? (
          <>
            <span class="soft">{latest.from}: </span>
            <Preview message={latest} />
          </>
        ) : (
          <em class="soft">Its messages have been deleted.</em>
        )}
      </p>
      <p class="message-state">
        {thread.resolved_at ? (
          <State kind="good">resolved by {thread.resolved_by ?? 'an agent that is gone'}</State>
        ) : (
          <State kind="off">open</State>
        )}
      </p>
      <p class="message-tags soft">
        {describeCount(thread.messages)} · {listParticipants(thread)}
      </p>
    </article>
  )
}

function describeCount(count: number): string {
  if (count >= 100) return '100 messages or more'
  return count === 1 ? '1 message' : `${count} messages`
}

function listParticipants({ participants, participants_count: count }: ListedThread): string {
  const more = count - participants.length
  return participants.join(', ') + (more > 0 ? ` and ${more} more` : '')
}

function NoThreads() {
  return (
    <Empty title="No threads yet">
      <p>
        An agent that names a <code>thread</code> with what it sends begins one; answers stay in it. What is sent
        without a thread stands under All messages.
      </p>
    </Empty>
  )
}
