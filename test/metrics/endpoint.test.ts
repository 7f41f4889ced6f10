import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { createGuards } from '../../server/http/guards.ts'
import { type MetricsEndpoint, serveMetrics } from '../../server/metrics/endpoint.ts'

const errors: object[] = []
let made = 0
let fails = false
let endpoint: MetricsEndpoint

before(async () => {
  endpoint = await serveMetrics({
    host: '127.0.0.1',
    port: 0,
    page: {
      contentType: 'text/plain; version=0.0.4; charset=utf-8',
      async text() {
        made++
        await new Promise((resolve) => setTimeout(resolve, 50))
        if (fails) throw new Error('broken inside')
        return 'patchcord_up 1\n'
      },
    },
    isHostAllowed: createGuards(null).isHostAllowed,
    log: { error: (details) => errors.push(details) },
  })
})
after(() => endpoint.close())

async function ask(path: string, method = 'GET', headers: Record<string, string> = {}) {
  return await new Promise<{ status: number; type: string; text: string }>((resolve, reject) => {
    const { host, port } = endpoint
    const asking = request({ host, port, path, method, headers, agent: false }, async (response) => {
      let text = ''
      for await (const chunk of response) text += chunk
      resolve({ status: response.statusCode ?? 0, type: response.headers['content-type'] ?? '', text })
    })
    asking.on('error', reject).end()
  })
}

test('the page is at /metrics in the text format, and nothing else is here', async () => {
  assert.deepEqual(await ask('/metrics'), {
    status: 200,
    type: 'text/plain; version=0.0.4; charset=utf-8',
    text: 'patchcord_up 1\n',
  })
  assert.equal((await ask('/metrics?x=1')).status, 200)
  assert.deepEqual(await ask('/metrics', 'HEAD').then(({ status, text }) => [status, text]), [200, ''])
  for (const path of ['/', '/health', '/metrics/', '/Metrics', '/metrics/../etc', '//metrics']) {
    assert.equal((await ask(path)).status, 404, path)
  }
  for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'TRACE']) {
    assert.equal((await ask('/metrics', method)).status, 405, method)
  }
})

test('a page of the web reads nothing through a name of its own that points here', async () => {
  const answer = await ask('/metrics', 'GET', { host: 'evil.example' })
  assert.equal(answer.status, 421)
  assert.ok(!answer.text.includes('patchcord_up'))
  for (const host of ['localhost:1', '127.0.0.1:1', '[::1]:1'])
    assert.equal((await ask('/metrics', 'GET', { host })).status, 200)
})

test('whoever asks while a page is made gets that one', async () => {
  const before = made
  const answers = await Promise.all(Array.from({ length: 20 }, () => ask('/metrics')))
  assert.ok(answers.every(({ status }) => status === 200))
  assert.ok(made - before < 20, `${made - before} pages for 20 questions`)
})

test('a page that cannot be made is an error in the log, and its answer says nothing of it', async () => {
  fails = true
  const { status, text } = await ask('/metrics')
  fails = false
  assert.equal(status, 500)
  assert.ok(!text.includes('broken inside'))
  assert.equal(errors.length, 1)
})
