import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { test } from 'node:test'
import { connect } from '../../server/db/connect.ts'
import { call, startTestApp } from '../helpers/app.ts'
import { createTestDatabase } from '../helpers/database.ts'

test('/health needs no token and says version, database and realtime', async () => {
  const database = await createTestDatabase()
  const app = await startTestApp(database)
  const keyless = await startTestApp(database, { signer: null })
  const answers = [await call(app, 'GET', '/health'), await call(keyless, 'GET', '/health')]
  await app.close()
  await keyless.close()
  await database.drop()
  const common = { status: 'ok', version: '0.0.0-test', database: 'ok' }
  assert.deepEqual(
    answers.map(({ status, json }) => ({ status, json })),
    [
      { status: 200, json: { ...common, realtime: 'builtin' } },
      { status: 200, json: { ...common, realtime: 'not_configured' } },
    ],
  )
})

test('/health is 503 within 3 s when the database accepts connections and says nothing', async () => {
  const sockets: Socket[] = []
  const deaf = createServer((socket) => void sockets.push(socket.on('error', () => undefined)))
  deaf.listen(0, '127.0.0.1')
  await once(deaf, 'listening')
  const { port } = deaf.address() as AddressInfo
  const api = connect({ url: `postgres://x:secret@127.0.0.1:${port}/x` }, { max: 2, applicationName: 'test' })
  const app = await startTestApp({ api })
  const startedAt = performance.now()
  const answers = await Promise.all([1, 2, 3].map(() => call(app, 'GET', '/health')))
  const tookMs = performance.now() - startedAt
  await app.close()
  for (const socket of sockets) socket.destroy()
  deaf.close()
  await api.end({ timeout: 0 })
  for (const answer of answers) {
    assert.equal(answer.status, 503)
    assert.equal(answer.headers.get('retry-after'), '5')
    assert.deepEqual(answer.json, {
      status: 'unavailable',
      version: '0.0.0-test',
      database: 'unreachable',
      realtime: 'builtin',
    })
  }
  assert.ok(tookMs >= 1_900 && tookMs < 4_000, `${tookMs} ms`)
  assert.ok(sockets.length <= 1, `${sockets.length} connections for one probe`)
})
