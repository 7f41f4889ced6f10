import type { FastifyRequest } from 'fastify'
import type { ActivityEvent, Activity as ActivityOf, ActivityRange, StepTime } from '../../domain/activity.ts'
import { BarChart } from '../components/chart.tsx'
import { Empty, Layout, Section, State, Table, Time } from '../components/index.ts'
import { formatDuration } from '../duration.ts'
import { Preview, Route } from '../message/rows.tsx'

export interface ActivityProps {
  request: FastifyRequest
  namespace: string
  range: ActivityRange
  activity: ActivityOf
}

const RANGES: Record<ActivityRange, string> = { '24h': '24 hours', '7d': '7 days' }
const BUCKETS = ['under 0.1 s', '0.1–1 s', '1–10 s', '10–60 s', '1–10 min', '10–60 min', 'over 1 h']
const STEPS: Record<StepTime['step'], { title: string; lead: string }> = {
  notified: { title: 'Time to notified', lead: 'until a listener wrote its line' },
  fetched: { title: 'Time to fetched', lead: 'until the agent read it' },
  answered: { title: 'Time to answered', lead: 'until the first answer was stored' },
}

/** How much is said here, how fast it gets through, and what did not. */
export function Activity(props: ActivityProps) {
  const { request, namespace, activity } = props
  return (
    <Layout
      request={request}
      title="Activity"
      namespace={{ namespace, pausedAt: activity.paused_at }}
      tab="activity"
      action={<RangeSwitch {...props} />}
    >
      <Hours {...props} />
      <Times activity={activity} />
      <Section
        title="What did not get through"
        lead="The latest messages that expired, were taken back, are held, or wait for somebody whom nobody has told."
      >
        <Events events={activity.events} namespace={namespace} now={request.page.now} />
      </Section>
    </Layout>
  )
}

function RangeSwitch({ namespace, range }: ActivityProps) {
  return (
    <nav class="views" aria-label="Time range">
      {Object.entries(RANGES).map(([value, label]) => (
        <a href={`/n/${namespace}/activity?range=${value}`} aria-current={value === range ? 'page' : undefined}>
          {label}
        </a>
      ))}
    </nav>
  )
}

function Hours({ activity, range }: ActivityProps) {
  const { hours } = activity
  const total = hours.reduce((sum, { messages }) => sum + messages, 0)
  return (
    <Section
      title="Messages per hour"
      aside={
        <p class="soft">
          <b class="figure">{total.toLocaleString('en')}</b> in {RANGES[range]}
        </p>
      }
    >
      <BarChart
        name={`Messages per hour in the last ${RANGES[range]}; the numbers stand in the table below`}
        bars={hours.map(({ hour, messages }) => ({ label: `${formatHour(hour)}: ${messages}`, value: messages }))}
        ticks={listTicks(hours, range)}
      />
      <details class="numbers">
        <summary>The numbers</summary>
        <table class="table plain">
          <caption class="sr">Messages per hour</caption>
          <thead>
            <tr>
              <th scope="col">Hour</th>
              <th scope="col" class="number">
                Messages
              </th>
            </tr>
          </thead>
          <tbody>
            {hours.toReversed().map(({ hour, messages }) => (
              <tr>
                <th scope="row">{formatHour(hour)}</th>
                <td class="number">{messages.toLocaleString('en')}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </Section>
  )
}

/** `Mon 30 Nov, 14:00 UTC` */
function formatHour(hour: string): string {
  const at = new Date(hour)
  const day = at.toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric', month: 'short', timeZone: 'UTC' })
  return `${day}, ${at.toISOString().slice(11, 16)} UTC`
}

/** Of a day every sixth hour, of a week each day. */
function listTicks(hours: ActivityOf['hours'], range: ActivityRange): string[] {
  const every = range === '24h' ? 6 : 24
  const ticks = hours.filter((_, index) => index % every === 0).map(({ hour }) => new Date(hour))
  return ticks.map((at) =>
    range === '24h'
      ? `${at.toISOString().slice(11, 16)} UTC`
      : at.toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric', timeZone: 'UTC' }),
  )
}

function Times({ activity }: { activity: ActivityOf }) {
  const { times, deliveries } = activity
  return (
    <Section
      title="How fast it gets through"
      lead={`Of the latest ${deliveries.toLocaleString('en')} deliveries, counted from accepted.`}
    >
      {deliveries === 0 ? (
        <Empty title="Nothing was delivered yet" level={3}>
          <p>As soon as agents write to each other, the times of their messages stand here.</p>
        </Empty>
      ) : (
        <>
          <div class="cards">
            {times.map((time) => (
              <StepCard time={time} />
            ))}
          </div>
          <details class="numbers">
            <summary>The numbers</summary>
            <TimesTable times={times} />
          </details>
        </>
      )}
    </Section>
  )
}

function StepCard({ time }: { time: StepTime }) {
  const { title, lead } = STEPS[time.step]
  return (
    <section class="card step-card">
      <h3>{title}</h3>
      <p class="soft">{lead}</p>
      {time.median_ms === null || time.p95_ms === null ? (
        <p class="soft step-none">none of them was</p>
      ) : (
        <>
          <p class="step-figures">
            <span>
              <b class="figure">{formatDuration(time.median_ms)}</b> median
            </span>
            <span class="soft">
              95 % within <b class="figure">{formatDuration(time.p95_ms)}</b>
            </span>
          </p>
          <BarChart
            name={`${title}: how many took how long; the numbers stand in the table below`}
            bars={bucketsOf(time).map((value, index) => ({ label: `${BUCKETS[index]}: ${value}`, value }))}
            ticks={['0.1 s', '1 s', '10 s', '1 min', '10 min', '1 h', '']}
            isByEnds
          />
        </>
      )}
    </section>
  )
}

/** How many are in each bucket, from how many took less than its end. */
function bucketsOf({ under, count }: StepTime): number[] {
  const ends = [...under, count]
  return ends.map((end, index) => end - (ends[index - 1] ?? 0))
}

function TimesTable({ times }: { times: readonly StepTime[] }) {
  return (
    <section class="scroll" tabindex={0} aria-label="Times of the steps">
      <table class="table plain">
        <caption class="sr">How many deliveries took how long to come to each step</caption>
        <thead>
          <tr>
            <th scope="col">Step</th>
            {['Deliveries', 'Median', '95th percentile', ...BUCKETS].map((label) => (
              <th scope="col" class="number">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times.map((time) => (
            <tr>
              <th scope="row">{time.step}</th>
              <td class="number">{time.count.toLocaleString('en')}</td>
              <td class="number">{time.median_ms === null ? '–' : formatDuration(time.median_ms)}</td>
              <td class="number">{time.p95_ms === null ? '–' : formatDuration(time.p95_ms)}</td>
              {bucketsOf(time).map((value) => (
                <td class="number">{value.toLocaleString('en')}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

const EVENTS: Record<ActivityEvent['event'], { kind: 'good' | 'warn' | 'bad' | 'off'; word: string }> = {
  expired: { kind: 'bad', word: 'expired' },
  unsent: { kind: 'off', word: 'taken back' },
  held: { kind: 'warn', word: 'held by the loop budget' },
  waiting: { kind: 'warn', word: 'waits, nobody told' },
}

function Events(props: { events: readonly ActivityEvent[]; namespace: string; now: Date }) {
  const { events, namespace, now } = props
  if (events.length === 0) {
    return (
      <Empty title="Everything got through" level={3}>
        <p>
          No message has expired, was taken back, is held by the loop budget, or has waited for more than 2 minutes
          without a listener having told its agent.
        </p>
      </Empty>
    )
  }
  return (
    <Table
      caption="Messages that did not get through"
      columns={[{ label: 'Message' }, { label: 'State' }, { label: 'To' }, { label: 'When' }]}
      rows={events.map(({ event, at, agent, message }) => ({
        key: `${event}-${agent}-${message.id}`,
        cells: [
          <div class="event-message">
            <a href={`/n/${namespace}/messages/${message.id}`}>
              <Route message={message} />
            </a>
            <p class="event-preview soft">
              <Preview message={message} />
            </p>
          </div>,
          <State kind={EVENTS[event].kind}>{EVENTS[event].word}</State>,
          agent,
          <Time at={at} now={now} />,
        ],
      }))}
    />
  )
}
