import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HTTP_STATUS } from '../../server/errors.ts'
import { createPrometheus } from '../../server/metrics/prometheus.ts'
import { parseSamples } from '../helpers/scrape.ts'

const create = (probe: () => Promise<unknown> = async () => undefined) =>
  createPrometheus({ version: '1.2.3', probe, withProcess: false })

/** Dashboards and alerts of operators name them: add, never rename. */
const NAMES = `
patchcord_build_info gauge version
patchcord_calls_running gauge of
patchcord_database_probe_seconds gauge
patchcord_database_up gauge
patchcord_http_request_seconds histogram method route status
patchcord_job_last_success_timestamp_seconds gauge job
patchcord_job_runs_total counter job outcome
patchcord_lease_batch_rows histogram
patchcord_lease_batch_seconds histogram
patchcord_lease_renewals_total counter
patchcord_mcp_tool_seconds histogram outcome tool
patchcord_queue_waiting gauge queue
patchcord_refusals_total counter by code
patchcord_sends_total counter outcome
patchcord_sockets_open gauge
patchcord_topics_joined gauge
patchcord_waiters_waiting gauge
patchcord_wake_delivery_seconds histogram source
patchcord_wake_frames_total counter
patchcord_wakes_taken_total counter
patchcord_wakes_total counter source
`.trim()

test('the names, types and labels of all metrics are these', async () => {
  const metrics = await create()
  metrics.requestAnswered('GET', '/health', 200, 1)
  metrics.refused('http', 'invalid')
  metrics.toolCalled('inbox', 'ok', 1)
  metrics.sent('woke')
  metrics.wakeCame('send')
  metrics.wakeTaken()
  metrics.wakeDelivered('send', 1, 1)
  metrics.leasesStored(1, 1)
  metrics.jobRan('retention', true)
  metrics.read({ sockets: () => 1, agentCallsRunning: () => 1, leasesWaiting: () => 1 })
  const page = await metrics.text()
  const types = [...page.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => {
    const samples = [...parseSamples(page).keys()].filter((sample) => sample.replace(/\{.*/, '').startsWith(name))
    const labels = new Set(samples.flatMap((sample) => [...sample.matchAll(/[{,](\w+)="/g)].map(([, label]) => label)))
    labels.delete('le')
    return [name, type, ...[...labels].sort()].join(' ')
  })
  assert.deepEqual(types.sort(), NAMES.split('\n'))
})

test('what a caller makes up becomes no label: methods are known ones, and what has no route has one name', async () => {
  const metrics = await create()
  for (let index = 0; index < 1_000; index++) metrics.requestAnswered(`M${index}`, undefined, 404, 1)
  metrics.requestAnswered('POST', '/api/messages/:id/reply', 201, 12)
  const counts = [...parseSamples(await metrics.text())].filter(([name]) => name.includes('http_request_seconds_count'))
  assert.deepEqual(counts, [
    ['patchcord_http_request_seconds_count{method="other",route="none",status="4xx"}', 1_000],
    ['patchcord_http_request_seconds_count{method="POST",route="/api/messages/:id/reply",status="2xx"}', 1],
  ])
})

test('every error code can be counted, by each of who refuses', async () => {
  const metrics = await create()
  const codes = Object.keys(HTTP_STATUS) as (keyof typeof HTTP_STATUS)[]
  for (const code of codes) for (const by of ['http', 'tool', 'gate'] as const) metrics.refused(by, code)
  const samples = [...parseSamples(await metrics.text()).keys()].filter((name) => name.includes('refusals_total'))
  assert.equal(samples.length, codes.length * 3)
})

test('a reading is taken when the page is asked for, and only then', async () => {
  const metrics = await create()
  let reads = 0
  metrics.read({
    sockets: () => {
      reads++
      return 7
    },
  })
  assert.equal(reads, 0)
  assert.equal(parseSamples(await metrics.text()).get('patchcord_sockets_open'), 7)
  assert.equal(reads, 1)
})

test('a database that refuses or hangs is told as down, the page comes nevertheless, and one question is open at a time', async () => {
  const refused = await create(() => Promise.reject(new Error('no')))
  assert.equal(parseSamples(await refused.text()).get('patchcord_database_up'), 0)
  let asked = 0
  const hanging = await create(() => {
    asked++
    return new Promise(() => undefined)
  })
  const pages = await Promise.all([hanging.text(), hanging.text()])
  for (const page of pages) assert.equal(parseSamples(page).get('patchcord_database_up'), 0)
  assert.equal(asked, 1)
  assert.equal(parseSamples(await (await create()).text()).get('patchcord_database_up'), 1)
})
