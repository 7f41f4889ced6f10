/** What a part of the benchmark has opened, closed in reverse order: at its end, when it fails, and at Ctrl-C; each once. */
export class Opened {
  readonly #closers: (() => unknown)[] = []
  #closing: Promise<void> | null = null

  /** What is told of only while the rest is being closed, is closed too. */
  add(close: () => unknown): void {
    this.#closers.push(close)
    if (this.#closing) this.#closing = this.#closing.then(() => this.#closeAll())
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeAll()
    return this.#closing
  }

  /** One that fails keeps none of the others from closing. */
  async #closeAll(): Promise<void> {
    const errors: unknown[] = []
    for (let close = this.#closers.pop(); close; close = this.#closers.pop()) {
      try {
        await close()
      } catch (error) {
        errors.push(error)
      }
    }
    if (errors.length > 0) throw new AggregateError(errors, `not everything could be closed: ${errors.join('; ')}`)
  }
}
