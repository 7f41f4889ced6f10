import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encode } from 'gpt-tokenizer/encoding/o200k_base'
import { cutToTokens, estimateTokens, shareTokens } from '../../server/domain/answer-size.ts'
import { TEXTS } from '../helpers/texts.ts'

const NATURAL = ['english', 'code', 'json', 'german']

for (const [name, text] of Object.entries(TEXTS)) {
  test(`the estimate is never below the tokens of a text, plain or in JSON: ${name}`, () => {
    // Without the two quotes.
    const tokens = Math.max(encode(text).length, encode(JSON.stringify(text)).length - 2)
    const estimate = estimateTokens(text)
    assert.ok(estimate >= tokens, `${estimate} for ${tokens}`)
    if (NATURAL.includes(name)) assert.ok(estimate < 3 * tokens, `${estimate} for ${tokens}`)
  })
}

test('a text is cut between characters, keeps to what it may take and is not cut when it fits', () => {
  for (const [name, text] of Object.entries(TEXTS)) {
    for (const max of [0, 1, 10, 777]) {
      const cut = cutToTokens(text, max)
      assert.ok(text.startsWith(cut), name)
      assert.ok(estimateTokens(cut) <= max, name)
      assert.doesNotMatch(cut, /\p{Surrogate}/u)
    }
    assert.equal(cutToTokens(text, estimateTokens(text)), text)
  }
})

test('short texts get all they want, long ones share the rest evenly', () => {
  assert.deepEqual(shareTokens([10, 20, 30], 100), [10, 20, 30])
  assert.deepEqual(shareTokens([1_000, 10, 500], 110), [50, 10, 50])
  assert.deepEqual(shareTokens([70, 70], 100), [50, 50])
  assert.deepEqual(shareTokens([5, 5], -1), [0, 0])
  assert.deepEqual(shareTokens([], 100), [])
})

test('a long text of one kind is estimated in linear time', () => {
  for (const text of [' '.repeat(1_000_000), 'a'.repeat(1_000_000), '1 '.repeat(500_000)]) {
    const startMs = performance.now()
    estimateTokens(text)
    assert.ok(performance.now() - startMs < 5_000)
  }
})
