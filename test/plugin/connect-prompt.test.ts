import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import { describe, test } from 'node:test'
import { askSecret } from '../../plugin/lib/prompt.ts'

/** A terminal as a program sees it: raw mode on request, keys as data. */
class Terminal extends EventEmitter {
  shown = ''
  modes: boolean[] = []
  isReading = false

  write(text: string): void {
    this.shown += text
  }
  setRawMode(isRaw: boolean): void {
    this.modes.push(isRaw)
  }
  setEncoding(): void {}
  resume(): void {
    this.isReading = true
  }
  pause(): void {
    this.isReading = false
  }
}

function ask(...keys: string[]): { terminal: Terminal; answer: Promise<string> } {
  const terminal = new Terminal()
  const answer = askSecret('Token: ', terminal, terminal)
  for (const key of keys) terminal.emit('data', key)
  return { terminal, answer }
}

describe('a secret that is asked for', () => {
  test('is not shown, may be pasted and corrected, and ends with Enter', async () => {
    const { terminal, answer } = ask('pc', '_abX', '\u007f', 'c\rrest')
    assert.equal(await answer, 'pc_abc')
    assert.equal(terminal.shown, 'Token: \n')
    assert.deepEqual([terminal.modes, terminal.isReading], [[true, false], false])
    assert.equal(terminal.listenerCount('data'), 0)
  })

  test('can be broken off, and the terminal is as before', async () => {
    const { terminal, answer } = ask('pc_', '\u0003')
    await assert.rejects(answer, { code: 'cancelled' })
    assert.deepEqual(terminal.modes, [true, false])
  })
})
