import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import type { AuditEvent } from '../../domain/security-log.ts'
import { Empty, formatAbsolute, Layout, Pager, Text, Time } from '../components/index.ts'
import { describeAudit } from './audit-sentences.ts'

export interface AuditProps {
  request: FastifyRequest
  member: Member
  events: AuditEvent[]
  next: string | null
  isFirstPage: boolean
}

/** Who changed what, and when? */
export function AuditPage({ request, member, events, next, isFirstPage }: AuditProps) {
  const path = `/n/${member.namespace}/audit`
  return (
    <Layout request={request} namespace={member} tab="audit" title="Audit">
      <p class="lead above-table">
        Every change of who may enter and as what, the latest first. Names are those of then.
      </p>
      {events.length === 0 ? (
        <Empty title="Nothing here">
          <p>{isFirstPage ? 'Nothing was changed yet.' : 'There is nothing older.'}</p>
        </Empty>
      ) : (
        <Events events={events} now={request.page.now} />
      )}
      <Pager next={next === null ? null : `${path}?before=${next}`} first={isFirstPage ? null : path} />
    </Layout>
  )
}

function Events({ events, now }: Pick<AuditProps, 'events'> & { now: Date }) {
  return (
    <ol class="events">
      {events.map((event) => {
        const { who, what } = describeAudit(event)
        return (
          <li id={`event-${event.id}`}>
            <p class="sentence">
              <strong>
                <Text value={who} inline />
              </strong>{' '}
              <Text value={what} inline />
            </p>
            <p class="when">
              <Time at={event.logged_at} now={now} />
              <span class="exact">{formatAbsolute(new Date(event.logged_at))}</span>
            </p>
          </li>
        )
      })}
    </ol>
  )
}
