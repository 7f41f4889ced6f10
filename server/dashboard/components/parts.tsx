import type { Child, PropsWithChildren } from 'hono/jsx'
import { Time } from './time.tsx'

/** What the page has to say: of an action that succeeded (`good`), of a state (`info`, `warn`), of what failed (`bad`). */
export function Notice(props: PropsWithChildren<{ kind?: 'info' | 'good' | 'warn' | 'bad'; title?: string }>) {
  const { kind = 'info' } = props
  return (
    <div class={`notice ${kind}`} role={kind === 'bad' ? 'alert' : 'status'}>
      {props.title && <p class="notice-title">{props.title}</p>}
      {props.children}
    </div>
  )
}

/** Nothing is here yet: what would be, and the one thing to do. */
export function Empty(props: PropsWithChildren<{ title: string; level?: 2 | 3 }>) {
  const Heading = props.level === 3 ? 'h3' : 'h2'
  return (
    <div class="empty">
      <Heading>{props.title}</Heading>
      {props.children}
    </div>
  )
}

/** A part of a page with its heading; `aside` stands at the right of it. */
export function Section(props: PropsWithChildren<{ title: string; lead?: Child; aside?: Child; id?: string }>) {
  return (
    <section class="section" id={props.id}>
      <div class="section-head">
        <h2>{props.title}</h2>
        {props.aside}
      </div>
      {props.lead && <p class="lead">{props.lead}</p>}
      {props.children}
    </section>
  )
}

/** A quiet frame around things that belong together. */
export function Card(props: PropsWithChildren) {
  return <div class="card">{props.children}</div>
}

/** Facts as terms and their values. */
export function Facts(props: { facts: readonly (readonly [term: string, value: Child])[] }) {
  return (
    <dl class="facts">
      {props.facts.map(([term, value]) => (
        <div>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

export interface Column {
  label: string
  /** The heading is for screen readers only, as over buttons. */
  isQuiet?: boolean
  isNumber?: boolean
}

/** A table, each of whose rows becomes a card on a narrow screen; the first cell is the row's heading. */
export function Table(props: {
  caption: string
  columns: readonly Column[]
  rows: readonly { key: string; cells: Child[] }[]
}) {
  const { columns } = props
  return (
    <table class="table">
      <caption class="sr">{props.caption}</caption>
      <thead>
        <tr>
          {columns.map(({ label, isQuiet, isNumber }) => (
            <th scope="col" class={isNumber ? 'number' : undefined}>
              {isQuiet ? <span class="sr">{label}</span> : label}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {props.rows.map(({ key, cells }) => (
          <tr id={`row-${key}`}>{cells.map((cell, index) => toCell(cell, columns[index], index === 0))}</tr>
        ))}
      </tbody>
    </table>
  )
}

function toCell(cell: Child, column: Column | undefined, isFirst: boolean) {
  const name = [column?.isNumber ? 'number' : '', column?.isQuiet ? 'quiet' : ''].filter(Boolean).join(' ')
  if (isFirst) return <th scope="row">{cell}</th>
  return (
    <td class={name || undefined} data-label={column?.isQuiet ? undefined : column?.label}>
      {cell}
    </td>
  )
}

/** Links to the next page of a list and back to its start. */
export function Pager(props: { next: string | null; first?: string | null; label?: string; nextLabel?: string }) {
  if (!props.next && !props.first) return null
  return (
    <nav class="pager" aria-label={props.label ?? 'Pages'}>
      {props.first && (
        <a class="button plain" href={props.first}>
          Back to the start
        </a>
      )}
      {props.next && (
        <a class="button plain" href={props.next} rel="next">
          {props.nextLabel ?? 'Show more'}
        </a>
      )}
    </nav>
  )
}

/** A word of state, with its colour beside the word, never instead of it. */
export function State(props: PropsWithChildren<{ kind: 'good' | 'warn' | 'bad' | 'off' }>) {
  return <span class={`state ${props.kind}`}>{props.children}</span>
}

/** What `patchcord.reach_of` says of an agent. */
export interface Reachable {
  reach: 'wakeable' | 'online' | 'offline'
  state?: 'idle' | 'busy' | null
  client: string | null
  machine: string | null
  lease_renewed_at: string | null
  last_seen_at: string | null
}

/** What listeners and hooks call themselves, as people know it. */
const CLIENTS: Record<string, string> = { 'claude-code': 'Claude Code', codex: 'Codex', listener: 'a listener' }

/** `wakeable · lease renewed 12 s ago · Claude Code on lap-3`: the state in words, with its evidence. */
export function Reach(props: { agent: Reachable; now: Date; isPaused?: boolean }) {
  const { agent, now } = props
  // Nobody is woken in a paused namespace, whatever listens.
  const isPaused = props.isPaused === true && agent.reach === 'wakeable'
  const kind = { wakeable: 'good', online: 'warn', offline: 'off' } as const
  const place = [agent.client && (CLIENTS[agent.client] ?? agent.client), agent.machine && `on ${agent.machine}`]
    .filter(Boolean)
    .join(' ')
  return (
    <span class="reach">
      <State kind={isPaused ? 'warn' : kind[agent.reach]}>{isPaused ? 'paused' : agent.reach}</State>
      <span class="evidence">
        {isPaused && ' · its listener runs'}
        {describeEvidence(agent, now)}
        {agent.state === 'busy' && agent.reach !== 'offline' && ' · busy'}
        {place && ` · ${place}`}
      </span>
    </span>
  )
}

function describeEvidence(agent: Reachable, now: Date): Child {
  if (agent.reach === 'wakeable' && agent.lease_renewed_at) {
    return (
      <>
        {' · lease renewed '}
        <Time at={agent.lease_renewed_at} now={now} />
      </>
    )
  }
  if (!agent.last_seen_at) return ' · never connected'
  return (
    <>
      {agent.reach === 'online' ? ' · no listener · last call ' : ' · last seen '}
      <Time at={agent.last_seen_at} now={now} />
    </>
  )
}
