import { Ledger } from '../ledger.ts'

/**
 * What must be true of every message, kept beside the real system: who sent what, what a listener's lines announced, what an
 * answer of the server showed. `judge` compares it with the inboxes and the ledgers once everything is at rest.
 */

/** How late this process may read a line that the listener's stdout has taken. */
const READ_LATE_MS = 2_000
/** How late a wake may reach a listener: the message may have been fetched meanwhile, and is announced all the same. */
const WAKE_LATE_MS = 15_000

export interface Sent {
  /** In the text of the message: by it a second copy is known. */
  key: string
  from: string
  to: string
  id: string
  /** As Date.now() of this process, which is the clock of Postgres, too. */
  begunAt: number
}

export interface Step {
  step: string
  at: string
}

export interface Shown {
  id: string
  key: string
  from?: string
}

/** What one recipient's inbox and the ledger said at rest. */
export interface Found {
  /** Shown for the first time when everything was at rest. */
  fresh: Shown[]
  /** Shown as what had been fetched before: an answer was lost. */
  older: Shown[]
  /** By message id. */
  steps: Map<string, Step[]>
}

export interface Verdict {
  lost: number
  doubled: number
  missed: number
  forged: number
  words: string[]
}

export function createVerdict(): Verdict {
  return { lost: 0, doubled: 0, missed: 0, forged: 0, words: [] }
}

export function isWrong({ lost, doubled, missed, forged, words }: Verdict): boolean {
  return lost + doubled + missed + forged + words.length > 0
}

/** What is known of one recipient since its inbox was last emptied. */
class Account {
  readonly sent = new Map<string, Sent>()
  /** By key: an answer named two ids. */
  readonly twice: string[] = []
  /** How often an answer showed it as new. */
  readonly shownNew = new Map<string, number>()
  /** Every id that any answer has shown, and when one did first. */
  readonly shown = new Map<string, Shown>()
  readonly shownAt = new Map<string, number>()
  readonly settled = new Set<string>()
  /** When fetches began whose answer never came. */
  readonly lostFetches: number[] = []
  readonly lines: { count: number; at: number }[] = []
  begun = 0
  /** What the present life may announce at most, and has announced; null: no listener lives. */
  life: { known: number; announced: number } | null = null
  overAnnounced = 0
}

export class Model {
  /** Agents whose inbox nobody opens before all is at rest: each of their lives is counted to the last message. */
  readonly #quiet: Set<string>
  readonly #ledger: Ledger
  readonly #accounts: Map<string, Account>

  constructor(agents: string[], quiet: string[]) {
    this.#quiet = new Set(quiet)
    this.#ledger = new Ledger(quiet)
    this.#accounts = new Map(agents.map((agent) => [agent, new Account()]))
  }

  begin(to: string[]): void {
    for (const agent of to) {
      this.#get(agent).begun += 1
      if (this.#quiet.has(agent)) this.#ledger.begin([agent])
    }
  }

  accept(message: Omit<Sent, 'to'>, to: string[]): void {
    for (const agent of to) {
      this.#get(agent).sent.set(message.id, { ...message, to: agent })
      if (this.#quiet.has(agent)) this.#ledger.accept(message.id, [agent])
    }
  }

  startLife(agent: string, at = Date.now()): void {
    const account = this.#get(agent)
    const known = [...account.shownAt.values()].filter((shownAt) => shownAt < at - WAKE_LATE_MS).length
    account.life = { known, announced: 0 }
    if (this.#quiet.has(agent)) this.#ledger.startLife(agent)
  }

  endLife(agent: string): void {
    this.#get(agent).life = null
    if (this.#quiet.has(agent)) this.#ledger.endLife(agent)
  }

  /** A line of the listener has been read. */
  announce(agent: string, count: number, at = Date.now()): void {
    const account = this.#get(agent)
    account.lines.push({ count, at })
    if (this.#quiet.has(agent)) this.#ledger.announce(agent, count)
    if (account.life === null) return
    const allowed = account.begun - account.life.known
    const before = Math.max(0, account.life.announced - allowed)
    account.life.announced += count
    account.overAnnounced += Math.max(0, account.life.announced - allowed) - before
  }

  /** An answer showed a message of this agent; `isNew`: it said that it had not been shown before. */
  show(agent: string, shown: Shown, isNew: boolean, at = Date.now()): void {
    const account = this.#get(agent)
    account.shown.set(shown.id, shown)
    if (!account.shownAt.has(shown.id)) account.shownAt.set(shown.id, at)
    if (isNew) account.shownNew.set(shown.id, (account.shownNew.get(shown.id) ?? 0) + 1)
  }

  /** A fetch has begun at this time, and nobody will ever know what it showed. */
  loseFetch(agent: string, begunAt: number): void {
    this.#get(agent).lostFetches.push(begunAt)
  }

  /** We asked for it to be settled, whether there was an answer or not. */
  settle(agent: string, id: string): void {
    this.#get(agent).settled.add(id)
  }

  /** Whether the present life has announced as many as are still new. */
  hasAnnounced(agent: string, stillNew: number): boolean {
    if (this.#quiet.has(agent)) return this.#ledger.isSettled(agent)
    return (this.#get(agent).life?.announced ?? -1) >= stillNew
  }

  listSent(agent: string): Sent[] {
    return [...this.#get(agent).sent.values()]
  }

  /** Compares and forgets: the next messages begin a new account. `found` by agent. */
  judge(found: Map<string, Found>): Verdict {
    const verdict = createVerdict()
    for (const [agent, account] of this.#accounts) {
      const theirs = found.get(agent)
      if (theirs === undefined) throw new Error(`nothing was found out of ${agent}`)
      judgeInbox(agent, account, theirs, verdict)
      judgeLedger(agent, account, theirs, verdict)
      if (!this.#quiet.has(agent)) judgeLines(agent, account, theirs, verdict)
      const next = new Account()
      next.life = account.life && { known: 0, announced: 0 }
      this.#accounts.set(agent, next)
    }
    const { missed, doubled } = this.#ledger.close()
    if (missed > 0)
      say(verdict, 'missed', missed, `${missed} messages were announced by no line of the listener's life`)
    if (doubled > 0) say(verdict, 'doubled', doubled, `${doubled} announcements more than there were messages`)
    return verdict
  }

  #get(agent: string): Account {
    const account = this.#accounts.get(agent)
    if (account === undefined) throw new Error(`no account of ${agent}`)
    return account
  }
}

type Count = 'lost' | 'doubled' | 'missed' | 'forged'

function say(verdict: Verdict, count: Count, by: number, words: string): void {
  verdict[count] += by
  verdict.words.push(words)
}

/** Every accepted message exactly once, and nothing else. */
function judgeInbox(agent: string, account: Account, { fresh, older }: Found, verdict: Verdict): void {
  const all = new Map([...account.shown, ...[...fresh, ...older].map((each) => [each.id, each] as const)])
  for (const { id, from, key } of account.sent.values()) {
    if (!all.has(id)) say(verdict, 'lost', 1, `${id} from ${from} to ${agent} (${key}) was accepted and is nowhere`)
  }
  const times = new Map(account.shownNew)
  for (const { id } of fresh) times.set(id, (times.get(id) ?? 0) + 1)
  for (const [id, count] of times) {
    if (count > 1) say(verdict, 'doubled', count - 1, `${id} was shown to ${agent} as new ${count} times`)
  }
  const idOf = new Map([...account.sent.values()].map(({ key, id }) => [key, id]))
  for (const { id, key } of all.values()) {
    if (account.sent.has(id)) continue
    const first = idOf.get(key)
    if (first === undefined) say(verdict, 'forged', 1, `${id} in the inbox of ${agent} was sent by nobody (${key})`)
    else say(verdict, 'doubled', 1, `${id} in the inbox of ${agent} is a second copy of ${first} (${key})`)
  }
}

/** No step that did not happen, and none missing that did. */
function judgeLedger(agent: string, account: Account, { fresh, steps }: Found, verdict: Verdict): void {
  const isFresh = new Set(fresh.map(({ id }) => id))
  for (const { id, begunAt } of account.sent.values()) {
    const at = timesOf(steps.get(id) ?? [])
    if (at.accepted === undefined)
      say(verdict, 'lost', 1, `the ledger of ${id} to ${agent} does not say that it was accepted`)
    else if (at.accepted < begunAt - 1)
      say(verdict, 'forged', 1, `the ledger of ${id} says accepted before it was sent`)
    if (isFresh.has(id) && at.notified === undefined) {
      say(verdict, 'missed', 1, `${id} is still new to ${agent} and the ledger knows of no line of its listener`)
    }
    const { fetched } = at
    const wasLost = account.lostFetches.some((begun) => fetched !== undefined && begun <= fetched)
    if (fetched !== undefined && !account.shown.has(id) && !wasLost) {
      say(verdict, 'forged', 1, `the ledger of ${id} says fetched, and ${agent} has asked for nothing`)
    }
    const settled = Object.keys(at).find((step) => !['accepted', 'notified', 'fetched'].includes(step))
    if (settled !== undefined && !account.settled.has(id)) {
      say(verdict, 'forged', 1, `the ledger of ${id} says ${settled}, which ${agent} has not asked for`)
    }
  }
  judgeNotified(agent, account, steps, verdict)
}

/** At no time more messages were notified than lines had been read for, those apart that a fetch took. */
function judgeNotified(agent: string, account: Account, steps: Map<string, Step[]>, verdict: Verdict): void {
  const isFetchedFirst = (at: Record<string, number>) =>
    at.fetched !== undefined && at.notified !== undefined && at.fetched <= at.notified
  const notified = [...account.sent.keys()]
    .map((id) => timesOf(steps.get(id) ?? []))
    .filter((at) => at.notified !== undefined && !isFetchedFirst(at))
    .map((at) => at.notified as number)
    .sort((a, b) => a - b)
  for (const [index, at] of notified.entries()) {
    const read = account.lines.filter((line) => line.at <= at + READ_LATE_MS)
    const announced = read.reduce((sum, { count }) => sum + count, 0)
    if (index + 1 <= announced) continue
    const when = new Date(at).toISOString()
    const words = `at ${when} ${index + 1} messages to ${agent} were notified, and lines had announced ${announced}`
    say(verdict, 'forged', index + 1 - announced, words)
    return
  }
}

/** For an agent that opens its inbox, a line can only be known to be too many or too few in sum. */
function judgeLines(agent: string, account: Account, { fresh }: Found, verdict: Verdict): void {
  const over = account.overAnnounced
  if (over > 0) say(verdict, 'doubled', over, `${agent}'s listener announced ${over} more than there were`)
  const missing = new Set(fresh.map(({ id }) => id)).size - (account.life?.announced ?? 0)
  if (missing > 0)
    say(verdict, 'missed', missing, `${missing} new messages of ${agent} were not announced in its listener's life`)
}

function timesOf(steps: Step[]): Record<string, number> {
  return Object.fromEntries(steps.map(({ step, at }) => [step, Date.parse(at)]))
}
