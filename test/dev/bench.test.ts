import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { Opened } from '../../scripts/dev/bench/opened.ts'
import { formatMs, median, meets, orderOf, percentile, type Row, ratioOf } from '../../scripts/dev/bench/row.ts'
import { formatTable } from '../../scripts/dev/bench/table.ts'
import { measure } from '../../scripts/dev/bench/tokens.ts'
import { createTemporaryFolder } from '../helpers/processes.ts'

/** Beyond what Claude Code wraps around every line of every monitor, which alone leaves too little of the 45 that were hoped for. */
const OWN_EVENT_TOKENS_MAX = 12

describe('what Patchcord costs a model to read', () => {
  const opened = new Opened()
  let rows: Row[] = []
  before(async () => {
    const folder = await createTemporaryFolder()
    opened.add(folder.remove)
    const options = { folder: folder.path, isQuick: true, isHuge: false, log: () => {} }
    rows = await measure({ ...options, onEnd: (close) => opened.add(close) })
  })
  after(() => opened.close())

  test('keeps within every budget, in a list of tools, the instructions and an empty inbox', () => {
    const judged = rows.filter(({ target, what }) => target !== null && !what.startsWith('a wake'))
    assert.equal(judged.length, 4)
    for (const { what, measured, target, isMet } of judged)
      assert.equal(isMet, true, `${what}: ${measured}, not ${target}`)
  })

  test('is few words of ours in the event of a wake', () => {
    const event = rows.find(({ what }) => what.startsWith('a wake: the whole event'))
    const { figure, envelope } = (event?.data ?? {}) as { figure: number; envelope: number }
    assert.ok(figure > envelope, `${figure} of which ${envelope} are not ours`)
    assert.ok(figure - envelope <= OWN_EVENT_TOKENS_MAX, `${figure - envelope} tokens`)
  })

  test('grows with the messages that an inbox shows', () => {
    const figures = rows
      .filter(({ what }) => / inbox( with 20 messages)?: tokens$/.test(what))
      .map(({ data }) => data.figure)
    assert.equal(figures.length, 2)
    const [empty, full] = figures as [number, number]
    assert.ok(full > empty + 20 * 60, `${empty} and ${full}`)
  })
})

describe('the figures of a benchmark', () => {
  test('are nearest ranks', () => {
    assert.equal(median([9, 1, 5]), 5)
    assert.equal(median([4, 1, 2, 3]), 2)
    assert.equal(percentile([...Array(100).keys()], 0.99), 98)
    assert.ok(Number.isNaN(median([])))
  })

  test('are judged by their target, which is met at its bound', () => {
    assert.deepEqual(
      [meets(1.5, '≤ 1.5'), meets(1.51, '≤ 1.5'), meets(0.6, '≥ 0.6'), meets(0.59, '≥ 0.6')],
      [true, false, true, false],
    )
  })

  test('make no ratio where one of the two was not measured', () => {
    assert.equal(ratioOf(3, 2), 1.5)
    for (const missing of [0, -1, Number.NaN]) {
      assert.throws(() => ratioOf(missing, 1))
      assert.throws(() => ratioOf(1, missing))
    }
    assert.throws(() => formatMs(Number.NaN))
  })

  test('are told with as many digits as mean something', () => {
    assert.deepEqual([0.424, 4.24, 42.4, 4_240, 42_400, -0.2].map(formatMs), [
      '0.42 ms',
      '4.2 ms',
      '42 ms',
      '4240 ms',
      '42.4 s',
      '-0.20 ms',
    ])
  })

  test('come from rounds in which each goes first equally often', () => {
    const orders = [0, 1, 2, 3, 4, 5].map((round) => orderOf(['a', 'b', 'c'], round).join(''))
    assert.deepEqual(orders, ['abc', 'cba', 'bca', 'acb', 'cab', 'bac'])
  })

  test('stand in columns of equal width, with the verdict beside the target', () => {
    const row = { part: 'b', what: 'a wake', measured: '1.0 ms', against: 'the least: 0.5 ms', data: {} }
    const lines = formatTable([
      { ...row, ratio: 2, target: '≤ 1.5', isMet: false },
      { ...row, ratio: null, target: null, isMet: null },
    ])
    assert.equal(new Set(lines.map((line) => line.length)).size, 1, lines.join('\n'))
    assert.match(lines[2] ?? '', /\| 2\.00 {2}\| ≤ 1\.5: MISSED \|$/)
    assert.match(lines[3] ?? '', /0\.5 ms \| +\| +\|$/)
  })
})

describe('what a part has opened', () => {
  test('is closed once, the last first, however one of them fails, and what comes late as well', async () => {
    const closed: string[] = []
    const opened = new Opened()
    opened.add(() => closed.push('first'))
    opened.add(() => {
      throw new Error('cannot be closed')
    })
    opened.add(async () => closed.push('last'))
    await assert.rejects(opened.close(), /cannot be closed/)
    assert.deepEqual(closed, ['last', 'first'])
    const other = new Opened()
    await other.close()
    other.add(() => closed.push('late'))
    await other.close()
    await other.close()
    assert.deepEqual(closed, ['last', 'first', 'late'])
  })
})
