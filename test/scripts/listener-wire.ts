/** A wire between a listener and its server that can go dead without a word, as a lost network or a sleeping router does. */
import net, { type AddressInfo, type Socket } from 'node:net'

export class Wire {
  readonly #server: net.Server
  readonly #pairs = new Set<Pair>()
  #isOpen = true

  private constructor(port: number) {
    this.#server = net.createServer((near) => {
      const pair: Pair = { near, far: net.connect(port, '127.0.0.1'), isDead: !this.#isOpen }
      this.#pairs.add(pair)
      join(pair.near, pair.far, pair)
      join(pair.far, pair.near, pair)
      for (const socket of [pair.near, pair.far]) socket.on('error', () => {})
      near.on('close', () => {
        this.#pairs.delete(pair)
        pair.far.destroy()
      })
    })
  }

  static async open(port: number): Promise<Wire> {
    const wire = new Wire(port)
    await new Promise<void>((resolve) => wire.#server.listen(0, '127.0.0.1', resolve))
    return wire
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  get connectionCount(): number {
    return this.#pairs.size
  }

  /** From now on no byte and no FIN passes on the connections that there are; with `isForAll` on new ones neither. */
  cutSilently({ isForAll = false } = {}): void {
    this.#isOpen = !isForAll
    for (const pair of this.#pairs) pair.isDead = true
  }

  /** New connections pass again; the dead ones stay dead. */
  mend(): void {
    this.#isOpen = true
  }

  async close(): Promise<void> {
    for (const { near, far } of this.#pairs) {
      near.destroy()
      far.destroy()
    }
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

interface Pair {
  near: Socket
  far: Socket
  isDead: boolean
}

function join(from: Socket, to: Socket, pair: Pair): void {
  from.on('data', (chunk) => {
    if (!pair.isDead) to.write(chunk)
  })
  from.on('end', () => {
    if (!pair.isDead) to.end()
  })
}
