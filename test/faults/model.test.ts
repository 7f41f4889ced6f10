import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { type Found, Model, type Step, type Verdict } from '../../scripts/dev/faults/model.ts'

const BEGUN = Date.parse('2026-01-01T00:00:00Z')
const shown = (id: string, key = `key of ${id}`) => ({ id, key })
const step = (name: string, seconds: number): Step => ({
  step: name,
  at: new Date(BEGUN + seconds * 1000).toISOString(),
})
const ACCEPTED = step('accepted', 1)
const NOTIFIED = step('notified', 3)

/** `quinn` opens no inbox before all is at rest, `reader` does; one life of each listener, and no message yet. */
function createModel(): Model {
  const model = new Model(['quinn', 'reader'], ['quinn'])
  for (const agent of ['quinn', 'reader']) model.startLife(agent)
  return model
}

function send(model: Model, to: string, id: string): void {
  model.begin([to])
  model.accept({ id, key: `key of ${id}`, from: 'sender', begunAt: BEGUN }, [to])
}

function judge(model: Model, to: string, found: Partial<Found>): Verdict {
  const nothing = { fresh: [], older: [], steps: new Map() }
  const all = new Map<string, Found>(['quinn', 'reader'].map((agent) => [agent, nothing]))
  return model.judge(all.set(to, { ...nothing, ...found }))
}

function counts({ lost, doubled, missed, forged }: Verdict): number[] {
  return [lost, doubled, missed, forged]
}

/** A message to each kind of recipient that went as it should. */
function deliver(model: Model, to: string): Partial<Found> {
  send(model, to, 'a')
  model.announce(to, 1, BEGUN + 2_000)
  return { fresh: [shown('a')], steps: new Map([['a', [ACCEPTED, NOTIFIED]]]) }
}

for (const to of ['quinn', 'reader']) {
  describe(`the model of what ${to} must get`, () => {
    test('finds nothing wrong with a message that was announced once and is there once, in each round anew', () => {
      const model = createModel()
      for (let round = 1; round <= 2; round++) {
        assert.deepEqual(judge(model, to, deliver(model, to)), { lost: 0, doubled: 0, missed: 0, forged: 0, words: [] })
      }
    })
    test('counts a message that no answer shows as lost', () => {
      const model = createModel()
      assert.deepEqual(counts(judge(model, to, { ...deliver(model, to), fresh: [] })), [1, 0, 0, 0])
    })
    test('counts one that is shown as new twice, and a second copy under another id, as doubled', () => {
      const model = createModel()
      const found = deliver(model, to)
      assert.deepEqual(counts(judge(model, to, { ...found, fresh: [shown('a'), shown('a')] })), [0, 1, 0, 0])
      assert.deepEqual(
        counts(judge(model, to, { ...deliver(model, to), older: [shown('b', 'key of a')] })),
        [0, 1, 0, 0],
      )
    })
    test('counts one that nobody sent as forged', () => {
      const model = createModel()
      assert.deepEqual(counts(judge(model, to, { ...deliver(model, to), older: [shown('b')] })), [0, 0, 0, 1])
    })
    test('counts one that the last life of its listener did not announce as missed, whatever an earlier life said', () => {
      const model = createModel()
      const found = deliver(model, to)
      model.endLife(to)
      model.startLife(to)
      assert.equal(model.hasAnnounced(to, 1), false)
      assert.deepEqual(counts(judge(model, to, found)), [0, 0, 1, 0])
    })
    test('counts a second announcement in one life as doubled', () => {
      const model = createModel()
      const found = deliver(model, to)
      model.announce(to, 1, BEGUN + 2_500)
      assert.deepEqual(counts(judge(model, to, found)), [0, 1, 0, 0])
    })
    test('counts a new message whose line was never reported as missed', () => {
      const model = createModel()
      const found = { ...deliver(model, to), steps: new Map([['a', [ACCEPTED]]]) }
      assert.deepEqual(counts(judge(model, to, found)), [0, 0, 1, 0])
    })
    test('counts notified as forged when no line had been read by then', () => {
      const model = createModel()
      send(model, to, 'a')
      model.announce(to, 1, BEGUN + 60_000)
      const steps = new Map([['a', [ACCEPTED, NOTIFIED]]])
      assert.deepEqual(counts(judge(model, to, { fresh: [shown('a')], steps })), [0, 0, 0, 1])
    })
    test('counts fetched and done as forged when nobody asked for it', () => {
      const model = createModel()
      const steps = new Map([['a', [ACCEPTED, NOTIFIED, step('fetched', 4), step('done', 5)]]])
      assert.deepEqual(counts(judge(model, to, { ...deliver(model, to), steps })), [0, 0, 0, 2])
    })
  })
}

describe('the model of an inbox that is opened', () => {
  test('takes a message that an answer showed, and one that a lost answer may have shown, as there', () => {
    const model = createModel()
    for (const id of ['a', 'b']) send(model, 'reader', id)
    model.announce('reader', 2, BEGUN + 2_000)
    model.show('reader', shown('a'), true)
    model.settle('reader', 'a')
    model.loseFetch('reader', BEGUN + 3_500)
    const fetched = [ACCEPTED, NOTIFIED, step('fetched', 4)]
    const steps = new Map([
      ['a', [...fetched, step('done', 5)]],
      ['b', fetched],
    ])
    assert.deepEqual(counts(judge(model, 'reader', { older: [shown('b')], steps })), [0, 0, 0, 0])
  })
  test('counts fetched as forged when the only lost answer was asked for later', () => {
    const model = createModel()
    const found = deliver(model, 'reader')
    model.loseFetch('reader', BEGUN + 9_000)
    const steps = new Map([['a', [ACCEPTED, NOTIFIED, step('fetched', 4)]]])
    assert.deepEqual(counts(judge(model, 'reader', { ...found, fresh: [], older: [shown('a')], steps })), [0, 0, 0, 1])
  })
  test('a life that begins long after a message was fetched must not announce it', () => {
    for (const [afterMs, doubled] of [
      [60_000, 1],
      [1_000, 0],
    ] as const) {
      const model = createModel()
      send(model, 'reader', 'a')
      model.show('reader', shown('a'), true, BEGUN + 2_000)
      model.endLife('reader')
      model.startLife('reader', BEGUN + 2_000 + afterMs)
      model.announce('reader', 1, BEGUN + 2_000 + afterMs)
      const steps = new Map([['a', [ACCEPTED, step('fetched', 2)]]])
      assert.deepEqual(counts(judge(model, 'reader', { steps })), [0, doubled, 0, 0])
    }
  })
  test('a message that was fetched before any line needs none', () => {
    const model = createModel()
    send(model, 'reader', 'a')
    model.show('reader', shown('a'), true)
    const steps = new Map([['a', [ACCEPTED, step('fetched', 2), NOTIFIED]]])
    assert.deepEqual(counts(judge(model, 'reader', { steps })), [0, 0, 0, 0])
  })
})
