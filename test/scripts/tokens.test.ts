import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checksumToken, isTokenText } from '../../scripts/lib/identity.cjs'
import { makeToken, TOKEN } from './listener-process.ts'

test('the checksum is CRC-32 in six digits of base 62', () => {
  // CRC-32 of "123456789" is 0xcbf43926, the check value of the polynomial.
  const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
  const value = [...checksumToken('123456789')].reduce((sum, digit) => sum * 62 + digits.indexOf(digit), 0)
  assert.equal(value, 0xcbf43926)
  assert.equal(checksumToken(''), '000000')
})

test('only a whole token with its own checksum is one', () => {
  assert.equal(isTokenText(TOKEN), true)
  const wrong = [
    `${TOKEN}x`,
    TOKEN.slice(0, -1),
    ` ${TOKEN}`,
    `${TOKEN}\n`,
    TOKEN.replace('pc_b', 'pc_c'),
    TOKEN.toUpperCase(),
    `\${TOKEN}`,
    'ghp_0123456789012345678901234567890123456789',
    '',
    null,
    7,
  ]
  for (const text of wrong) assert.equal(isTokenText(text), false, String(text))
  assert.equal(isTokenText(makeToken('_')), true)
})
