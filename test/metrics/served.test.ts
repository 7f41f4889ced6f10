import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { type IncomingMessage, request } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { createTestDatabase } from '../helpers/database.ts'
import { createTemporaryFolder } from '../helpers/processes.ts'
import { openDatabaseUrl, type Program, startProgram } from '../helpers/program.ts'
import { seed } from '../helpers/seed.ts'

const MAIN = 'dist/server/main.js'

async function untilListening({ output, child }: Program): Promise<string> {
  for (;;) {
    const url = /listens on (\S+)/.exec(output.stdout)?.[1]
    if (url) return url
    if (child.exitCode !== null) throw new Error(`ended: ${output.stderr}`)
    await sleep(20)
  }
}

/** The status for a page of the web that has made its own name point to this machine. */
async function askAs(name: string, host: string, port: number): Promise<number | undefined> {
  const asking = request({ host, port, path: '/metrics', headers: { host: name }, agent: false }).end()
  const [response] = (await once(asking, 'response')) as [IncomingMessage]
  response.resume()
  return response.statusCode
}

async function assertRefused(env: Record<string, string>, sentence: RegExp): Promise<void> {
  const { code, stderr } = await startProgram(MAIN, [], { LOG_LEVEL: 'silent', PORT: '0', ...env }).ended
  assert.match(stderr, sentence)
  assert.equal(stderr.trimEnd().split('\n').length, 1, stderr)
  assert.equal(code, 1)
}

test('an address that the metrics cannot have stops the start with one sentence, before anything is written', async () => {
  const folder = await createTemporaryFolder()
  const dataDir = join(folder.path, 'data')
  const other = createServer()
  other.listen(0, '127.0.0.1')
  await once(other, 'listening')
  const { port } = other.address() as AddressInfo
  const refuse = (address: string, sentence: RegExp) =>
    assertRefused({ PATCHCORD_DATA_DIR: dataDir, PATCHCORD_METRICS: address }, sentence)
  try {
    await refuse(
      `127.0.0.1:${port}`,
      /^Port \d+ of 127\.0\.0\.1 is in use: stop .*, or set PATCHCORD_METRICS to another/,
    )
    await refuse('192.0.2.1:9464', /^PATCHCORD_METRICS 192\.0\.2\.1 is not an address of this machine\.$/m)
    await refuse(
      'on',
      /^PATCHCORD_METRICS must be host:port \(a port up to 65535\), an address of its own to serve \/metrics on, such as 127\.0\.0\.1:9464\.$/m,
    )
    assert.equal(existsSync(dataDir), false)
  } finally {
    other.close()
    await folder.remove()
  }
})

test('the server shows its metrics where it is told to and nowhere else, those of the process with them', async () => {
  const database = await createTestDatabase()
  const api = await openDatabaseUrl(database.apiTarget)
  const { alice } = await seed(database, 'watched', ['alice'])
  const env = { PORT: '0', DATABASE_URL: api.url }
  const silent = startProgram(MAIN, [], env)
  const told = startProgram(MAIN, [], { ...env, PATCHCORD_METRICS: '127.0.0.1:0' })
  try {
    const [silentUrl, url] = [await untilListening(silent), await untilListening(told)]
    await fetch(`${url}/api/whoami`, { headers: { authorization: `Bearer ${alice.token}` } })
    const line = told.output.stderr.split('\n').find((each) => each.includes('metrics are served')) ?? '{}'
    const { host, port } = JSON.parse(line)
    const page = await (await fetch(`http://${host}:${port}/metrics`)).text()
    for (const sample of [
      /^patchcord_build_info\{version="\d+\.\d+\.\d+"\} 1$/m,
      /^patchcord_http_request_seconds_count\{method="GET",route="\/api\/whoami",status="2xx"\} 1$/m,
      /^patchcord_database_up 1$/m,
      /^nodejs_eventloop_lag_p99_seconds /m,
      /^process_resident_memory_bytes \d/m,
    ]) {
      assert.match(page, sample)
    }
    assert.equal(await askAs('evil.example', host, port), 421)
    for (const each of [silentUrl, url]) {
      const { status } = await fetch(`${each}/metrics`, { headers: { 'x-forwarded-for': '127.0.0.1' } })
      assert.equal(status, 404)
    }
    assert.ok(!silent.output.stderr.includes('metrics'))
  } finally {
    for (const { child } of [silent, told]) child.kill('SIGTERM')
    const ends = await Promise.all([silent.ended, told.ended])
    await api.close()
    await database.drop()
    assert.deepEqual(
      ends.map(({ code }) => code),
      [0, 0],
    )
  }
})
