import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bodyBytesMax, createAddressLimiter } from '../../server/http/address-limit.ts'

test('an address that used up its minute waits for the rest of it', () => {
  let now = 1_000
  const limiter = createAddressLimiter(2, () => now)
  assert.equal(limiter.hit('192.0.2.1'), null)
  now += 20_000
  assert.equal(limiter.hit('192.0.2.1'), null)
  assert.equal(limiter.hit('192.0.2.1'), 40)
  assert.equal(limiter.hit('192.0.2.2'), null)
  now += 39_500
  assert.equal(limiter.hit('192.0.2.1'), 1)
  now += 500
  assert.equal(limiter.hit('192.0.2.1'), null)
})

test('all addresses of one IPv6 /64 are one, and so are both spellings of an IPv4 address', () => {
  const same = [
    ['2001:db8:1:2::1', '2001:db8:1:2:ffff:ffff:ffff:ffff'],
    ['2001:db8::1', '2001:db8:0:0:8::'],
    ['fe80::1%eth0', 'fe80::2%eth1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
  ]
  for (const [first = '', second = ''] of same) {
    const limiter = createAddressLimiter(1)
    assert.equal(limiter.hit(first), null)
    assert.ok(limiter.hit(second), `${first} and ${second}`)
  }
  const limiter = createAddressLimiter(1)
  for (const other of ['2001:db8:1:2::1', '2001:db8:1:3::1', '::1', '192.0.2.1', '::ffff:192.0.2.2']) {
    assert.equal(limiter.hit(other), null, other)
  }
})

test('a flood from 100,000 addresses is forgotten from its oldest on, not kept', () => {
  const limiter = createAddressLimiter(1)
  for (let index = 0; index < 100_000; index++) limiter.hit(`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`)
  assert.equal(limiter.hit('10.0.0.0'), null)
  assert.ok(limiter.hit('10.1.134.159'))
})

test('the body limit holds the longest message in its longest spelling', () => {
  const body = JSON.stringify({ to: 'bob', content: '' }).length + 50_000 * '\\ud83d\\ude00'.length
  assert.ok(bodyBytesMax(50_000) > body)
  assert.ok(bodyBytesMax(50_000) < 1_000_000)
})
