import type { Change, ChangeFilter, Changes, FilterCheck, RealtimeSource } from '../domain/realtime.ts'
import { PUBLISHED_TABLE } from '../domain/realtime.ts'
import { TICKET_ROLE, type TicketClaims } from '../domain/tickets.ts'
import { PatchcordError } from '../errors.ts'
import { Refusal } from './authorize.ts'
import { type Binding, explainRefusal, parseBindings } from './change-bindings.ts'
import type { ChangeFeed, ChangeListener } from './change-feed.ts'
import type { Hub, HubChannel } from './hub.ts'
import { changeMessage, type Ref, type ServerMessage, systemMessage } from './phoenix.ts'
import { shareRuns } from './shared-run.ts'
import { claimText, wakeTopic } from './topic.ts'

/** While a join waits, what failed is tried again this often. */
const WAITING_RETRY_MS = 500

export interface SubscriptionContext {
  hub: Hub
  feed: ChangeFeed
  source: RealtimeSource
  times: { subscribeRetryMs: number }
  log: { error(fields: object, message: string): void }
  later(delayMs: number, work: () => void): void
}

export interface SubscriptionChannel {
  readonly topic: string
  readonly joinRef: Ref
  /** Sends once the join is answered, unless the channel's token has expired, which ends the channel. */
  sendLive(message: ServerMessage): void
}

/** The `postgres_changes` of one channel: it says when it is subscribed, or why not, and sends the rows. */
export class Subscription {
  readonly #params: Record<string, unknown>[]
  readonly #channel: SubscriptionChannel
  readonly #context: SubscriptionContext
  #bindings: Binding[] = []
  #listener: ChangeListener | null = null
  #hint: HubChannel | null = null
  /** Those of the last start; null: stopped. */
  #claims: TicketClaims | null = null
  /** Counts starts: an older one that is still under way has lost. */
  #generation = 0
  /** However many tokens a client sends, the database is asked for one thing at a time. */
  readonly #run = shareRuns(() => this.#attempt())

  constructor(params: Record<string, unknown>[], channel: SubscriptionChannel, context: SubscriptionContext) {
    this.#params = params
    this.#channel = channel
    this.#context = context
  }

  /**
   * (Re)subscribes with these claims; until that is said, the claims of the last time decide. Resolves once it is said or
   * has failed; then it is tried again later.
   */
  async start(claims: TicketClaims): Promise<void> {
    this.#generation++
    this.#claims = claims
    await this.#run()
  }

  async #attempt(): Promise<void> {
    const [claims, generation] = [this.#claims, this.#generation]
    if (claims === null) return
    try {
      const refusal = await this.#subscribe(claims, generation)
      if (generation === this.#generation) this.#say(refusal)
    } catch (error) {
      if (generation !== this.#generation) return
      this.#report(error)
      this.#context.later(this.#context.times.subscribeRetryMs, () => {
        if (generation === this.#generation) void this.#run()
      })
    }
  }

  /**
   * The same for a client whose join waits for it (`postgres_changes_options` of 2026): what is wrong refuses the join, and
   * what fails is tried again until the time is over. Throws Refusal.
   */
  async startWithin(waitMs: number, claims: TicketClaims): Promise<void> {
    const generation = ++this.#generation
    const deadline = performance.now() + waitMs
    while (generation === this.#generation) {
      const attempt = this.#subscribe(claims, generation).catch((error) => this.#report(error))
      const refusal = await Promise.race([attempt, this.#sleep(deadline - performance.now())])
      if (refusal === null) return this.#say(null)
      if (refusal !== undefined) throw new Refusal(`RealtimeDisabledForConfiguration: ${refusal}`)
      const leftMs = deadline - performance.now()
      if (leftMs <= 0) {
        const reason = `Timed out after ${waitMs}ms waiting for the postgres_changes subscription`
        throw new Refusal(`PostgresChangesSubscribeTimeout: ${reason}`)
      }
      await this.#sleep(Math.min(leftMs, WAITING_RETRY_MS))
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#context.later(ms, resolve))
  }

  stop(): void {
    this.#generation++
    this.#claims = null
    this.#unlisten()
  }

  #report(error: unknown): void {
    const isPassing = error instanceof PatchcordError && error.code === 'unavailable'
    if (!isPassing) this.#context.log.error({ err: error }, 'realtime subscription failed')
  }

  /** null, or the sentence of what is wrong with the bindings. */
  async #subscribe(claims: TicketClaims, generation: number): Promise<string | null> {
    const bindings = parseBindings(this.#params)
    if (typeof bindings === 'string') return bindings
    const check = await this.#context.source.checkFilters(
      claims.role,
      bindings.flatMap(({ filters }) => filters),
    )
    const refusal = explainRefusal(bindings, check)
    if (generation !== this.#generation) return null
    if (refusal !== null) {
      this.#unlisten()
      return refusal
    }
    this.#bindings = withFilters(bindings, check)
    await this.#listen(claims, generation)
    return null
  }

  /** The same agent goes on without a gap; what came for another one until now is still its own. */
  async #listen(claims: TicketClaims, generation: number): Promise<void> {
    const agentId = readableAgent(claims)
    const { feed, hub } = this.#context
    if (this.#listener) await feed.read()
    if (generation !== this.#generation || this.#listener?.agentId === agentId) return
    this.#unlisten()
    if (agentId === null) return
    const listener = {
      agentId,
      onChange: (change: Change, columns: Changes['columns']) => this.#deliver(change, columns),
    }
    await feed.add(listener)
    if (generation !== this.#generation) return feed.remove(listener)
    this.#listener = listener
    this.#hint = { topic: wakeTopic(claimText(claims, 'ns') ?? '', agentId), agentId, deliver: () => feed.hint() }
    hub.addChannel(this.#hint)
  }

  #unlisten(): void {
    if (this.#listener) this.#context.feed.remove(this.#listener)
    if (this.#hint) this.#context.hub.removeChannel(this.#hint)
    this.#listener = null
    this.#hint = null
  }

  #deliver(change: Change, columns: Changes['columns']): void {
    const matching = this.#bindings.filter(({ filters }) => filters.every((filter) => isMatch(filter, change.record)))
    const [first] = matching
    if (!first) return
    const isShown = (name: string) =>
      first.select === null ||
      first.select.includes(name) ||
      (PUBLISHED_TABLE.primaryKey as readonly string[]).includes(name)
    this.#channel.sendLive(
      changeMessage(this.#channel.topic, {
        schema: PUBLISHED_TABLE.schema,
        table: PUBLISHED_TABLE.name,
        record: Object.fromEntries(Object.entries(change.record).filter(([name]) => isShown(name))),
        columns: columns.filter(({ name }) => isShown(name)),
        committedAt: change.committedAt,
        ids: matching.map(({ id }) => id),
      }),
    )
  }

  #say(refusal: string | null): void {
    const [status, message] =
      refusal === null ? (['ok', 'Subscribed to PostgreSQL'] as const) : (['error', refusal] as const)
    this.#channel.sendLive(systemMessage(this.#channel, 'postgres_changes', status, message))
  }
}

/** Each binding's filters with the values as records show them. */
function withFilters(bindings: Binding[], check: FilterCheck): Binding[] {
  const filters = 'filters' in check ? [...check.filters] : []
  return bindings.map((binding) => ({ ...binding, filters: filters.splice(0, binding.filters.length) }))
}

function isMatch({ column, values }: ChangeFilter, record: Record<string, unknown>): boolean {
  const value = claimText(record, column)
  return value !== null && values.includes(value)
}

/** Whose rows the policy on agent_messages shows to these claims; null: no row at all. */
function readableAgent(claims: TicketClaims): string | null {
  const agentId = claimText(claims, 'agent')
  const isUuid = agentId !== null && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(agentId)
  return claims.role === TICKET_ROLE && isUuid ? agentId : null
}
