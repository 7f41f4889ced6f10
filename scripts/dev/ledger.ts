/**
 * Who was told of what, by the listener's promise: each new message is announced once in a listener's life, and every
 * message that is still new is announced in each life that comes after. Lines name no ids, so they are counted: between
 * two readings of the inbox (a window) nothing stops being new, and whichever life of a listener reaches the window's end
 * must have announced exactly what came in the window, or at its start found waiting.
 */

interface Account {
  /** Sends that may have been stored since the last reading of the inbox: more than that nobody can know of. */
  begun: number
  /** Ids whose send was answered since then. */
  accepted: Set<string>
  /** What the current life has announced of this window; null: no listener lives. */
  announced: number | null
}

export interface Verdict {
  missed: number
  /** Announced more often than once in a life. */
  doubled: number
}

export class Ledger {
  readonly #accounts: Map<string, Account>
  #doubled = 0

  constructor(agents: string[]) {
    this.#accounts = new Map(agents.map((agent) => [agent, { begun: 0, accepted: new Set(), announced: null }]))
  }

  /** A send starts: from now on its announcement may come, even before the sender has an answer. */
  begin(agents: string[]): void {
    for (const agent of agents) this.#get(agent).begun += 1
  }

  accept(id: string, agents: string[]): void {
    for (const agent of agents) this.#get(agent).accepted.add(id)
  }

  startLife(agent: string): void {
    this.#get(agent).announced = 0
  }

  endLife(agent: string): void {
    this.#get(agent).announced = null
  }

  /** A line of the agent's current life. */
  announce(agent: string, count: number): void {
    const account = this.#get(agent)
    const before = account.announced ?? 0
    account.announced = before + count
    this.#doubled += excess(account.announced, account.begun) - excess(before, account.begun)
  }

  /** Whether the agent's current life has announced everything of this window. */
  isSettled(agent: string): boolean {
    const { announced, accepted } = this.#get(agent)
    return announced !== null && announced >= accepted.size
  }

  /** What the agent's inbox must show as new. */
  listNew(agent: string): string[] {
    return [...this.#get(agent).accepted]
  }

  /** Ends the window, when every send has been answered and the inboxes have been read. Doubles of dead lives count too. */
  close(): Verdict {
    let missed = 0
    for (const account of this.#accounts.values()) {
      missed += excess(account.accepted.size, account.announced ?? 0)
      account.begun = 0
      account.accepted.clear()
      if (account.announced !== null) account.announced = 0
    }
    const doubled = this.#doubled
    this.#doubled = 0
    return { missed, doubled }
  }

  #get(agent: string): Account {
    const account = this.#accounts.get(agent)
    if (account === undefined) throw new Error(`no account of ${agent}`)
    return account
  }
}

function excess(count: number, allowed: number): number {
  return Math.max(0, count - allowed)
}
