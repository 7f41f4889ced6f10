import assert from 'node:assert/strict'
import { type IncomingMessage, request, ServerResponse } from 'node:http'
import { after, before, describe, test } from 'node:test'
import { createExports } from '../../server/dashboard/message/export.ts'
import type { ExportedMessage } from '../../server/domain/message-list.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { type Browser, browseAs } from '../helpers/dashboard.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seedMessages } from '../helpers/many-messages.ts'
import { type SeededPerson, signInOperator } from '../helpers/people.ts'

const COUNT = 3_000

describe('the export of messages', () => {
  let database: TestDatabase
  let app: TestApp
  let person: SeededPerson
  let browser: Browser
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    await seedMessages(database.admin, 'acme', COUNT)
    await seedMessages(database.admin, 'other', 50)
    await database.admin`insert into patchcord.namespaces (name) values ('empty')`
    person = await signInOperator(database)
    browser = browseAs(app, person)
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  test('is a JSON file of all messages, newest first, with the ledger of each recipient', async () => {
    const answer = await browser.get('/n/acme/messages/export')
    assert.equal(answer.status, 200)
    assert.equal(answer.headers.get('content-disposition'), 'attachment; filename="acme-messages.json"')
    assert.match(answer.headers.get('content-type') ?? '', /^application\/json/)
    assert.match(answer.headers.get('content-security-policy') ?? '', /default-src 'none'/)
    const messages = JSON.parse(answer.html) as { id: string; sent_at: string; content: string; recipients: object[] }[]
    assert.equal(messages.length, COUNT)
    assert.equal(new Set(messages.map(({ id }) => id)).size, COUNT)
    assert.deepEqual(
      messages.map(({ sent_at: at }) => at),
      messages
        .map(({ sent_at: at }) => at)
        .sort()
        .reverse(),
    )
    assert.match(messages[0]?.content ?? '', new RegExp(`^Step ${COUNT} of`))
    assert.match(
      JSON.stringify(messages[1]?.recipients),
      /^\[\{(?=.*"agent":"agent-07")(?=.*"state":"done")(?=.*"notified_at":"\d)/,
    )
  })

  test('holds what the filters of its address leave, and is an empty list where they leave nothing', async () => {
    const kinds = JSON.parse((await browser.get('/n/acme/messages/export?kind=question')).html) as { kind: string }[]
    assert.deepEqual([kinds.length, new Set(kinds.map(({ kind }) => kind))], [COUNT / 50, new Set(['question'])])
    const rare = JSON.parse((await browser.get('/n/acme/messages/export?state=expired&kind=message')).html) as object[]
    assert.equal(rare.length, 3)
    assert.equal((await browser.get('/n/empty/messages/export')).html, '[]\n')
    assert.deepEqual(JSON.parse((await browser.get('/n/acme/messages/export?text=neverwritten')).html), [])
    assert.equal((await browser.get('/n/acme/messages/export?state=odd')).status, 400)
  })

  test('that breaks on its way says so in its last element, and is JSON all the same', async () => {
    const original = app.deps.sql.begin
    let calls = 0
    app.deps.sql.begin = ((...parameters: unknown[]) => {
      if (++calls > 4) return Promise.reject(Object.assign(new Error('gone'), { code: 'CONNECTION_CLOSED' }))
      return Reflect.apply(original, app.deps.sql, parameters)
    }) as typeof original
    try {
      const messages = JSON.parse((await browser.get('/n/acme/messages/export')).html) as Record<string, string>[]
      assert.ok(messages.length > 100 && messages.length < COUNT, `${messages.length}`)
      assert.deepEqual(Object.keys(messages.at(-1) ?? {}), ['error'])
      assert.match(messages.at(-1)?.error ?? '', /broke off/)
    } finally {
      app.deps.sql.begin = original
    }
  })

  test('reads no further than it is taken, and ends when the reader goes', async () => {
    const original = app.deps.sql.begin
    let calls = 0
    app.deps.sql.begin = ((...parameters: unknown[]) => {
      calls++
      return Reflect.apply(original, app.deps.sql, parameters)
    }) as typeof original
    try {
      const cookie = `__Host-patchcord=${person.session}`
      const closed = new Promise<void>((resolve, reject) => {
        const sent = request(`${app.url}/n/acme/messages/export`, { headers: { cookie } }, (response) => {
          response.once('readable', () => {
            sent.destroy()
            resolve()
          })
          response.on('error', () => {})
        })
        sent.on('error', reject).end()
      })
      await closed
      await new Promise((resolve) => setTimeout(resolve, 300))
      const before = calls
      assert.ok(before < 20, `${before} of 30 pages were read for nobody`)
      await new Promise((resolve) => setTimeout(resolve, 300))
      assert.equal(calls, before, 'nobody takes it, nobody reads')
    } finally {
      app.deps.sql.begin = original
    }
  })
})

describe('an export under way', () => {
  /** A response that nobody takes anything from until it is told so. */
  function createSlowResponse() {
    const response = new ServerResponse({ method: 'GET' } as IncomingMessage)
    const state = { text: '', isSlow: true, isDestroyed: false }
    Object.defineProperty(response, 'writableNeedDrain', { get: () => state.isSlow })
    Object.defineProperty(response, 'destroyed', { get: () => state.isDestroyed })
    response.writeHead = (() => response) as typeof response.writeHead
    response.write = ((part: string) => {
      state.text += part
      return !state.isSlow
    }) as typeof response.write
    response.end = ((part: string) => {
      state.text += part
      return response
    }) as typeof response.end
    response.destroy = (() => {
      state.isDestroyed = true
      response.emit('close')
      return response
    }) as typeof response.destroy
    return { response, state }
  }

  async function begin(isSlow: boolean) {
    const exports = createExports({ warn: () => {} })
    const { response, state } = createSlowResponse()
    state.isSlow = isSlow
    let taken = 0
    async function* makePages(): AsyncGenerator<ExportedMessage[]> {
      for (; taken < 5; taken++) {
        await new Promise((resolve) => setTimeout(resolve, 5))
        yield [{ id: String(taken) } as ExportedMessage]
      }
    }
    const pages = makePages()
    const sending = exports.send(response, { name: 'x.json', first: await pages.next(), pages })
    await new Promise((resolve) => setTimeout(resolve, isSlow ? 40 : 0))
    return { exports, response, state, sending, taken: () => taken }
  }

  test('waits until what it wrote was taken before it reads on', async () => {
    const { response, state, sending, taken } = await begin(true)
    assert.equal(taken(), 0)
    state.isSlow = false
    response.emit('drain')
    await sending
    assert.deepEqual(JSON.parse(state.text), [{ id: '0' }, { id: '1' }, { id: '2' }, { id: '3' }, { id: '4' }])
    assert.equal(response.listenerCount('drain'), 0)
  })

  test('ends when the server closes: with a mark for who reads, at once for who does not', async () => {
    const reading = await begin(false)
    reading.exports.close()
    await reading.sending
    assert.match((JSON.parse(reading.state.text) as { error?: string }[]).at(-1)?.error ?? '', /broke off/)
    const stalled = await begin(true)
    stalled.exports.close()
    await stalled.sending
    assert.equal(stalled.state.isDestroyed, true)
  })
})
