import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import type { AuditEvent } from '../../domain/security-log.ts'
import { Empty, formatAbsolute, Layout, Pager, Table, Text, Time } from '../components/index.ts'
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
        <AuditTable events={events} now={request.page.now} />
      )}
      <Pager next={next === null ? null : `${path}?before=${next}`} first={isFirstPage ? null : path} />
    </Layout>
  )
}

function AuditTable({ events, now }: Pick<AuditProps, 'events'> & { now: Date }) {
  const rows = events.map((event) => {
    const { who, what } = describeAudit(event)
    return {
      key: String(event.id),
      cells: [
        <span class="sentence">
          <strong>
            <Text value={who} inline />
          </strong>{' '}
          <Text value={what} inline />
        </span>,
        <Time at={event.logged_at} now={now} />,
        <span class="exact">{formatAbsolute(new Date(event.logged_at))}</span>,
      ],
    }
  })
  const columns = [{ label: 'What' }, { label: 'When' }, { label: 'Exactly' }]
  return <Table caption="Changes, the latest first" columns={columns} rows={rows} />
}
