import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { loadConfig, toOrigin } from '../server/config.ts'

const POSTGRES = 'postgres://u:p@db.example:5432/x'
const JWK = JSON.stringify({ kty: 'EC', crv: 'P-256', kid: 'k1', x: 'x', y: 'y', d: 'd' })

describe('config', () => {
  test('nothing set means the embedded server on loopback, with the default limits', () => {
    const config = loadConfig({})
    assert.deepEqual(
      [config.host, config.port, config.databaseUrl, config.realtime, config.signing, config.retentionDays],
      ['127.0.0.1', 8787, null, 'builtin', null, 30],
    )
    assert.deepEqual([config.limits.sendBurst, config.limits.sendPerSecond], [30, 0.5])
    assert.ok(Object.isFrozen(config))
  })

  test('new people need an invite unless the operator says otherwise', () => {
    assert.equal(loadConfig({}).signup, 'invite')
    assert.equal(loadConfig({ PATCHCORD_SIGNUP: 'open' }).signup, 'open')
  })

  test('the dashboard is at the public address, or where the server listens', () => {
    const at = (host: string, publicUrl: string | null = null) =>
      toOrigin({ publicUrl: publicUrl === null ? null : new URL(publicUrl) }, host, 8787)
    assert.equal(at('127.0.0.1'), 'http://127.0.0.1:8787')
    assert.equal(at('0.0.0.0'), 'http://localhost:8787')
    assert.equal(at('::'), 'http://localhost:8787')
    assert.equal(at('::1'), 'http://[::1]:8787')
    assert.equal(at('0.0.0.0', 'https://cord.example.org/x'), 'https://cord.example.org')
  })

  test('metrics have an address of their own, or none', () => {
    assert.equal(loadConfig({}).metrics, null)
    assert.equal(loadConfig({ PATCHCORD_METRICS: '' }).metrics, null)
    const read = (text: string) => loadConfig({ PATCHCORD_METRICS: text }).metrics
    assert.deepEqual(read('127.0.0.1:9464'), { host: '127.0.0.1', port: 9464 })
    assert.deepEqual(read('[::1]:0'), { host: '::1', port: 0 })
    assert.deepEqual(read('metrics.internal:9464'), { host: 'metrics.internal', port: 9464 })
  })

  test('a limit can be overridden alone', () => {
    const { limits } = loadConfig({ PATCHCORD_LIMITS: '{"sendBurst": 100}' })
    assert.deepEqual([limits.sendBurst, limits.turnsMax], [100, 20])
  })

  const wrong: [string, Record<string, string>][] = [
    ['PORT', { PORT: '80a' }],
    ['PORT', { PORT: '65536' }],
    ['PORT', { PATCHCORD_PORT: '8787' }],
    ['SUPABASE_SECRET_KEY', { SUPABASE_KEY: 'x' }],
    ['DATABASE_URL', { DATABASE_URL: 'mysql://x' }],
    ['DATABASE_URL', { DATABASE_URL: 'postgres://u:p@pooler.example:6543/x' }],
    ['DATABASE_URL', { SUPABASE_URL: 'https://x.example', SUPABASE_ANON_KEY: 'k' }],
    ['SUPABASE_PUBLISHABLE_KEY', { SUPABASE_URL: 'https://x.example', DATABASE_URL: POSTGRES }],
    ['PATCHCORD_PUBLIC_URL', { PATCHCORD_PUBLIC_URL: 'example.com' }],
    ['PATCHCORD_REALTIME', { PATCHCORD_REALTIME: 'pigeon' }],
    ['PATCHCORD_REALTIME', { PATCHCORD_REALTIME: 'broadcast' }],
    ['PATCHCORD_SIGNING_KEY', { PATCHCORD_SIGNING_KEY: '{"kty":"EC"}' }],
    ['PATCHCORD_SIGNING_KEY', { PATCHCORD_SIGNING_KEY: 'secret' }],
    ['SUPABASE_JWT_SECRET', { SUPABASE_JWT_SECRET: 'short' }],
    ['PATCHCORD_LIMITS', { PATCHCORD_LIMITS: '{"sendBurst": "many"}' }],
    ['PATCHCORD_LIMITS', { PATCHCORD_LIMITS: '{"sendBursts": 1}' }],
    ['PATCHCORD_LIMITS', { PATCHCORD_LIMITS: '{' }],
    ['PATCHCORD_RETENTION_DAYS', { PATCHCORD_RETENTION_DAYS: '0' }],
    ['PATCHCORD_SIGNUP', { PATCHCORD_SIGNUP: 'closed' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: 'on' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: '1' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: '9464' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: ':9464' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: '127.0.0.1' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: '127.0.0.1:65536' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: '::1:9464' }],
    ['PATCHCORD_METRICS', { PATCHCORD_METRICS: 'http://127.0.0.1:9464' }],
    ['LOG_LEVEL', { LOG_LEVEL: 'loud' }],
  ]
  for (const [variable, env] of wrong) {
    test(`${JSON.stringify(env)} stops the start with one sentence that names ${variable}`, () => {
      assert.throws(
        () => loadConfig(env),
        (error: Error) => {
          assert.equal(error.name, 'StartError')
          assert.match(error.message, new RegExp(`^[^\\n]*${variable}[^\\n]*\\.$`))
          return true
        },
      )
    })
  }

  test('an error never repeats a value, which may be a secret', () => {
    const secret = 'super-secret-value'
    for (const env of [
      { DATABASE_URL: secret },
      { DATABASE_URL: `mysql://u:${secret}@db.example/x` },
      { DATABASE_URL: `postgres://u:${secret}@pooler.example:6543/x` },
      { PATCHCORD_SIGNING_KEY: secret },
      { PATCHCORD_SIGNING_KEY: JSON.stringify({ ...JSON.parse(JWK), kid: 7, d: secret }) },
      { SUPABASE_JWT_SECRET: secret },
      { SUPABASE_KEY: secret },
      { SUPABASE_URL: 'https://x.example', SUPABASE_SECRET_KEY: secret, DATABASE_URL: POSTGRES },
      { PATCHCORD_LIMITS: secret },
      { PATCHCORD_LIMITS: JSON.stringify({ sendBurst: secret }) },
      { PATCHCORD_PUBLIC_URL: secret },
      { PATCHCORD_PUBLIC_URL: `ftp://u:${secret}@x.example` },
    ]) {
      assert.throws(
        () => loadConfig(env),
        (error: Error) => error.name === 'StartError' && !error.message.includes(secret),
        JSON.stringify(env),
      )
    }
  })

  test('Supabase is read with either name of its key, and signs with either kind of key', () => {
    const base = { SUPABASE_URL: 'https://x.example', DATABASE_URL: POSTGRES }
    const one = loadConfig({ ...base, SUPABASE_PUBLISHABLE_KEY: 'k', PATCHCORD_SIGNING_KEY: JWK })
    assert.deepEqual([one.realtime, one.supabase?.publishableKey, one.signing?.algorithm], ['broadcast', 'k', 'ES256'])
    const other = loadConfig({ ...base, SUPABASE_ANON_KEY: 'a', SUPABASE_JWT_SECRET: 's'.repeat(32) })
    assert.deepEqual([other.supabase?.publishableKey, other.signing?.algorithm], ['a', 'HS256'])
  })
})
