import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Ledger } from '../../scripts/dev/ledger.ts'

function createLedger(ids: string[]): Ledger {
  const ledger = new Ledger(['alice', 'bob'])
  ledger.startLife('alice')
  ledger.startLife('bob')
  for (const id of ids) {
    ledger.begin(['alice'])
    ledger.accept(id, ['alice'])
  }
  return ledger
}

describe('the ledger of announcements', () => {
  test('is settled once each message was announced in the life that reaches the end of the window', () => {
    const ledger = createLedger(['a', 'b', 'c'])
    ledger.announce('alice', 2)
    assert.equal(ledger.isSettled('alice'), false)
    ledger.announce('alice', 1)
    assert.equal(ledger.isSettled('alice'), true)
    assert.deepEqual(ledger.listNew('alice'), ['a', 'b', 'c'])
    assert.deepEqual(ledger.close(), { missed: 0, doubled: 0 })
    assert.deepEqual(ledger.listNew('alice'), [])
  })
  test('asks a new life to announce again what is still new', () => {
    const ledger = createLedger(['a', 'b'])
    ledger.announce('alice', 2)
    ledger.endLife('alice')
    assert.equal(ledger.isSettled('alice'), false)
    ledger.startLife('alice')
    assert.equal(ledger.isSettled('alice'), false)
    ledger.announce('alice', 2)
    assert.deepEqual(ledger.close(), { missed: 0, doubled: 0 })
  })
  test('counts what no line spoke of as missed', () => {
    const ledger = createLedger(['a', 'b'])
    ledger.announce('alice', 1)
    assert.deepEqual(ledger.close(), { missed: 1, doubled: 0 })
  })
  test('counts what was announced before it could be known of, or again, as doubled, also in a life that has ended', () => {
    const ledger = createLedger(['a', 'b'])
    ledger.announce('alice', 2)
    ledger.announce('alice', 1)
    ledger.endLife('alice')
    ledger.startLife('alice')
    ledger.announce('alice', 2)
    assert.deepEqual(ledger.close(), { missed: 0, doubled: 1 })
  })
  test('counts a late repetition of what an earlier window had as doubled', () => {
    const ledger = createLedger(['a'])
    ledger.announce('alice', 1)
    ledger.close()
    ledger.announce('alice', 1)
    assert.deepEqual(ledger.close(), { missed: 0, doubled: 1 })
  })
  test('lets a line come before the answer to the sender', () => {
    const ledger = createLedger([])
    ledger.begin(['alice', 'bob'])
    ledger.announce('alice', 1)
    ledger.announce('bob', 1)
    ledger.accept('a', ['alice', 'bob'])
    assert.deepEqual(ledger.close(), { missed: 0, doubled: 0 })
  })
})
