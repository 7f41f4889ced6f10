import type { FastifyRequest } from 'fastify'
import { MessageState } from '../../domain/delivery.ts'
import { MESSAGE_KINDS, type MessagePage } from '../../domain/message-list.ts'
import {
  Button,
  ButtonLink,
  Choice,
  Copy,
  Empty,
  Field,
  Layout,
  Live,
  Notice,
  Pager,
  Time,
} from '../components/index.ts'
import { FILTERS, listPath, type ReadFilters } from '../message/filters.ts'
import { MessageRows } from '../message/rows.tsx'
import { nameState } from '../message/states.tsx'
import { MessageViews } from '../message/views.tsx'

export interface MessagesProps {
  request: FastifyRequest
  namespace: string
  list: MessagePage
  read: ReadFilters
}

/** What agents said to each other, newest first, narrowed by filters that stand in the address. */
export function Messages(props: MessagesProps) {
  const { request, namespace, list, read } = props
  const path = `/n/${namespace}/messages`
  const isFirst = read.before === undefined
  const isFiltered = FILTERS.some((name) => read.typed[name] !== '')
  const isEmpty = isFirst && !isFiltered && list.messages.length === 0
  return (
    <Layout
      request={request}
      title="Messages"
      namespace={{ namespace, pausedAt: list.paused_at }}
      tab="messages"
      action={!isEmpty && <Export path={path} read={read} />}
    >
      <MessageViews namespace={namespace} view="messages" />
      {!isEmpty && <FilterForm path={path} list={list} read={read} isFiltered={isFiltered} />}
      {read.problems.length > 0 && (
        <Notice kind="bad" title="Nothing is looked for">
          {read.problems.map((problem) => (
            <p>{problem}</p>
          ))}
        </Notice>
      )}
      {isFirst && read.problems.length === 0 ? (
        <Live name="list" page={request.page} events={`/n/${namespace}/events`} rows="message">
          <MessageList {...props} />
        </Live>
      ) : (
        <MessageList {...props} />
      )}
    </Layout>
  )
}

/** The part that is live: rows, or why there are none, and the way to older ones. */
export function MessageList({ request, namespace, list, read }: MessagesProps) {
  const path = `/n/${namespace}/messages`
  const isFiltered = FILTERS.some((name) => read.typed[name] !== '')
  const first = read.before === undefined ? null : listPath(path, read.typed)
  const next = list.next && listPath(path, read.typed, list.next)
  return (
    <>
      {list.messages.length > 0 ? (
        <MessageRows namespace={namespace} messages={list.messages} now={request.page.now} />
      ) : isFiltered || read.before ? (
        <NothingFound path={path} list={list} now={request.page.now} />
      ) : (
        <NoMessages />
      )}
      <Pager
        next={next}
        first={first}
        label="Pages of messages"
        {...(list.messages.length < 50 && { nextLabel: 'Look further back' })}
      />
    </>
  )
}

function NothingFound({ path, list, now }: { path: string; list: MessagePage; now: Date }) {
  return (
    <Empty title={list.next ? 'Nothing so far' : 'No message is like this'}>
      {list.next ? (
        <p>
          Everything since <Time at={list.next.split('_')[0] ?? ''} now={now} /> was looked at; there is more before
          that.
        </p>
      ) : (
        <p>
          Take a filter away, or <a href={path}>see all messages</a>.
        </p>
      )}
    </Empty>
  )
}

function NoMessages() {
  return (
    <Empty title="No agent has said anything yet">
      <p>
        Once two agents are connected, ask one of them to write to the other, by its name. What it sends appears here
        while you watch, with every step up to the answer.
      </p>
      <Copy text="Send backend a message: can you hear me? Then wait for the answer." />
    </Empty>
  )
}

function Export({ path, read }: { path: string; read: ReadFilters }) {
  return (
    <ButtonLink href={listPath(`${path}/export`, read.typed)} download>
      Export JSON
    </ButtonLink>
  )
}

function FilterForm(props: { path: string; list: MessagePage; read: ReadFilters; isFiltered: boolean }) {
  const { path, list, read, isFiltered } = props
  const { typed } = read
  const isNarrowed = FILTERS.some((name) => name !== 'text' && typed[name] !== '')
  return (
    <search>
      <form method="get" action={path} class="message-filters">
        <div class="message-search">
          <Field
            name="text"
            label="Search the texts"
            hideLabel
            type="search"
            value={typed.text}
            maxLength={200}
            placeholder="Search: words, “a phrase”, -without"
          />
          <Button>Search</Button>
        </div>
        <details open={isNarrowed}>
          <summary>Filters{isNarrowed && <span class="soft"> · on</span>}</summary>
          <div class="message-fields">
            <Field name="agent" label="Agent" value={typed.agent} maxLength={40} list="agents" mono />
            <datalist id="agents">
              {list.agents.map((name) => (
                <option value={name}></option>
              ))}
            </datalist>
            <Choice
              name="direction"
              label="Direction"
              value={typed.direction}
              options={[
                { value: '', label: 'to or from it' },
                { value: 'from', label: 'from it' },
                { value: 'to', label: 'to it' },
              ]}
            />
            <Choice
              name="state"
              label="State"
              value={typed.state}
              options={[
                { value: '', label: 'any' },
                ...MessageState.options.map((value) => ({ value, label: nameState(value) })),
              ]}
            />
            <Choice
              name="kind"
              label="Kind"
              value={typed.kind}
              options={[{ value: '', label: 'any' }, ...MESSAGE_KINDS.map((value) => ({ value, label: value }))]}
            />
            <Field name="thread" label="Thread" value={typed.thread} maxLength={64} mono />
            <Button>Apply</Button>
          </div>
        </details>
        {isFiltered && (
          <p class="message-clear">
            <a href={path}>Clear all filters</a>
          </p>
        )}
      </form>
    </search>
  )
}
