import type { FastifyRequest } from 'fastify'
import type { Child } from 'hono/jsx'
import type { MessageStory } from '../../domain/message-story.ts'
import { Facts, formatAbsolute, Layout, Live, Section, Text, Time } from '../components/index.ts'
import { Ledger } from '../message/ledger.tsx'
import { Route } from '../message/rows.tsx'
import { StatesOf } from '../message/states.tsx'

export interface MessageProps {
  request: FastifyRequest
  namespace: string
  message: MessageStory
}

/** One message: what was said, and its way from accepted to answered. */
export function Message(props: MessageProps) {
  const { request, namespace, message } = props
  return (
    <Layout
      request={request}
      title={`Message from ${message.from}`}
      namespace={{ namespace, pausedAt: message.paused_at }}
      tab="messages"
      hideTitle
    >
      <p class="crumb">
        <a href={`/n/${namespace}/messages`}>← Messages</a>
      </p>
      <div class="title">
        <h1>
          <Route message={message} />
        </h1>
      </div>
      <div class="message-facts">
        <Facts facts={listFacts(props)} />
      </div>
      {message.about?.content && (
        <details class="fold">
          <summary>What it answers: {message.about.from} wrote</summary>
          <div class="card message-body">
            <Text value={message.about.content} />
          </div>
        </details>
      )}
      <div class="card message-body">
        {message.content === null ? (
          <p class="soft">
            {message.from} took this message back before anybody read it. That it was there is kept; its text is shown
            to nobody.
          </p>
        ) : (
          <Text value={message.content} />
        )}
      </div>
      <Section title="What became of it">
        <Live name="ledger" page={request.page} events={`/n/${namespace}/events`}>
          <MessageLedger {...props} />
        </Live>
      </Section>
    </Layout>
  )
}

/** The part that is live. */
export function MessageLedger({ request, namespace, message }: MessageProps) {
  return (
    <>
      {message.recipients > 1 && (
        <p class="ledger-sum">
          {message.recipients} recipients: <StatesOf message={message} />
        </p>
      )}
      <Ledger namespace={namespace} message={message} now={request.page.now} />
      {message.next && (
        <nav class="pager" aria-label="Pages of recipients">
          <a class="button plain" href={`/n/${namespace}/messages/${message.id}?after=${message.next}`} rel="next">
            More recipients
          </a>
        </nav>
      )}
      <Answers request={request} namespace={namespace} message={message} />
    </>
  )
}

function Answers({ request, namespace, message }: MessageProps) {
  if (message.answers.length === 0) return null
  return (
    <div class="answers">
      <h3>What was answered</h3>
      {message.answers.map(({ id, from, sent_at: sentAt, content }) => (
        <article>
          <p>
            <a href={`/n/${namespace}/messages/${id}`}>{from} answered</a> <Time at={sentAt} now={request.page.now} />
          </p>
          <div class="card message-body">
            {content === null ? <p class="soft">Taken back before anybody read it.</p> : <Text value={content} />}
          </div>
        </article>
      ))}
    </div>
  )
}

function listFacts({ namespace, message, request }: MessageProps): [string, Child][] {
  const { thread, thread_id: threadId, kind, urgency, about } = message
  const facts: [string, Child][] = [
    [
      'Sent',
      <>
        <Time at={message.sent_at} now={request.page.now} />
        <span class="soft fact-exact" aria-hidden="true">
          {formatAbsolute(new Date(message.sent_at))}
        </span>
      </>,
    ],
  ]
  if (kind !== 'message') facts.push(['Kind', kind])
  if (urgency !== 'normal') facts.push(['Urgency', urgency])
  if (thread && threadId) facts.push(['Thread', <a href={`/n/${namespace}/threads/${threadId}`}>{thread}</a>])
  if (about) {
    facts.push([
      'In answer to',
      <a href={`/n/${namespace}/messages/${about.id}`}>
        a message from {about.from}, <Time at={about.sent_at} now={request.page.now} />
      </a>,
    ])
  }
  facts.push(['Id', <code class="id">{message.id}</code>])
  return facts
}
