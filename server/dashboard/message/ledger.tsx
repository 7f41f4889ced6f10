import type { MessageStory, RecipientStory } from '../../domain/message-story.ts'
import { Notice } from '../components/index.ts'
import { formatClock, formatDuration } from '../duration.ts'
import { type Advice, adviseOn } from './advice.tsx'
import { StateWord } from './states.tsx'

const BAR = 1_000

export interface LedgerProps {
  namespace: string
  message: MessageStory
  now: Date
}

/** What became of a message with one recipient: the steps as one line, one thin bar, and what to do where it is stuck. */
export function Story({ namespace, message, recipient, now }: LedgerProps & { recipient: RecipientStory }) {
  const advice = adviseOn(message, recipient, now)
  return (
    <div class="story">
      <p class="story-head">
        <b>{recipient.agent}</b> <StateWord state={recipient.state} />
      </p>
      <p class="story-steps">
        <Steps namespace={namespace} recipient={recipient} />
      </p>
      <StoryBar recipient={recipient} />
      {advice && <AdviceLine advice={advice} />}
    </div>
  )
}

/** What only takes its time is said quietly; what somebody should look at is not. */
function AdviceLine({ advice }: { advice: Advice }) {
  if (advice.kind === 'info') return <p class="story-note">{advice.text}</p>
  return (
    <Notice kind={advice.kind}>
      <p>{advice.text}</p>
    </Notice>
  )
}

/** `accepted 14:02:11.204 → notified +18 ms → fetched +2.1 s → answered +41 s` */
function Steps({ namespace, recipient }: { namespace: string; recipient: RecipientStory }) {
  const start = startOf(recipient)
  return (
    <>
      {recipient.steps.map(({ step, at }, index) => (
        <>
          {index > 0 && <span class="arrow">{' → '}</span>}
          <span class={`step ${step}`}>
            {step === 'answered' && recipient.answer_id ? (
              <a href={`/n/${namespace}/messages/${recipient.answer_id}`}>answered</a>
            ) : (
              wordOf(step)
            )}{' '}
            <time datetime={at} title={at}>
              {index === 0 ? formatClock(new Date(at)) : `+${formatDuration(Date.parse(at) - start)}`}
            </time>
          </span>
        </>
      ))}
    </>
  )
}

function wordOf(step: string): string {
  return step === 'unsent' ? 'taken back' : step === 'deferred' ? 'put off' : step
}

function startOf({ steps }: RecipientStory): number {
  return Date.parse(steps[0]?.at ?? '')
}

/**
 * One bar for the way from accepted to the last step, a part for each. Their lengths are logarithms: milliseconds beside hours
 * would not be seen. The line above says the same in words.
 */
function StoryBar({ recipient }: { recipient: RecipientStory }) {
  const parts = measureParts(recipient)
  return (
    <svg class="story-bar" viewBox={`0 0 ${BAR} 6`} preserveAspectRatio="none" aria-hidden="true" focusable="false">
      <rect class="bar-ground" x="0" y="0" width={BAR} height="6" />
      {parts.map(({ step, x, width }) => (
        <rect class={`bar-${step}`} x={x} y="0" width={width} height="6" />
      ))}
    </svg>
  )
}

interface Part {
  step: string
  x: number
  width: number
}

/** Of the whole length what has come: a message that is not settled leaves the rest of its bar empty. */
function measureParts({ steps, state }: RecipientStory): Part[] {
  const lengths = steps.slice(1).map(({ step, at }, index) => ({
    step,
    length: Math.log10(10 + Math.max(0, Date.parse(at) - Date.parse(steps[index]?.at ?? at))),
  }))
  const isSettled = !['new', 'open', 'deferred'].includes(state)
  const total = lengths.reduce((sum, { length }) => sum + length, 0) * (isSettled ? 1 : 1.6)
  let end = 0
  return lengths.map(({ step, length }, index) => {
    // A hair of ground between two parts.
    const x = Math.round(end) + (index > 0 ? 3 : 0)
    end += (length / total) * BAR
    return { step, x, width: Math.max(2, Math.round(end) - x) }
  })
}

/** All recipients of this page, the stuck ones open. */
export function Ledger({ namespace, message, now }: LedgerProps) {
  return (
    <div class="ledger" data-unsettled={markOf(message)}>
      {message.stories.map((recipient) => (
        <Story namespace={namespace} message={message} recipient={recipient} now={now} />
      ))}
      {message.stories.some(({ steps }) => steps.length > 1) && (
        <p class="hint">Times are UTC; each + counts from accepted. Parts of a bar are drawn on a logarithmic scale.</p>
      )}
    </div>
  )
}

function markOf({ stories }: MessageStory): string | undefined {
  if (!stories.some(({ state }) => state === 'new' || state === 'open')) return undefined
  return stories.map(({ steps }) => steps.length).join('.')
}
