import assert from 'node:assert/strict'
import { request } from 'node:http'
import { connect } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { createGuards } from '../../server/http/guards.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

const PUBLIC = new URL('https://patchcord.example.com')
const MISDIRECTED = {
  error: {
    code: 'misdirected',
    message: 'This server does not answer under that host name.',
    hint: 'The operator sets PATCHCORD_PUBLIC_URL to the address that people and agents use.',
  },
}
const FORBIDDEN = {
  error: {
    code: 'forbidden',
    message: 'Requests from pages of other sites are refused.',
    hint: 'Leave the Origin header out, or call from the server’s own address.',
  },
}

test('hosts: loopback names, addresses and the public URL are answered, every other name is not', () => {
  const guards = createGuards(PUBLIC, ['box.lan'])
  const allowed = [
    'localhost',
    'localhost:8787',
    'LOCALHOST',
    '127.0.0.1:1',
    '192.0.2.7',
    '[::1]:8787',
    '[2001:db8::1]',
  ]
  for (const host of [...allowed, 'patchcord.example.com', 'Patchcord.Example.com:443', 'box.lan:8787']) {
    assert.ok(guards.isHostAllowed(host), host)
  }
  const refused = ['', 'evil.example', 'localhost.evil.example', 'evil.example.com', 'xpatchcord.example.com']
  const tricks = ['evil@127.0.0.1', '127.0.0.1@evil.example', '127.0.0.1.evil.example', 'localhost/', '::1', 'a b']
  for (const host of [...refused, ...tricks, 'evil.example#localhost', 'localhost:x', 'localhost:999999']) {
    assert.equal(guards.isHostAllowed(host), false, host)
  }
  assert.equal(createGuards(null).isHostAllowed('patchcord.example.com'), false)
})

test('a request that names its host or its token twice is refused, before anything is decided by either', async () => {
  const database = await createTestDatabase()
  const app = await startTestApp(database)
  const { port } = new URL(app.url)
  const ask = (head: string) =>
    new Promise<string>((resolve, reject) => {
      const socket = connect(Number(port), '127.0.0.1')
      let answer = ''
      socket.setEncoding('utf8').on('data', (text: string) => {
        answer += text
      })
      socket.on('error', reject).on('end', () => resolve(answer.split('\r\n')[0] ?? ''))
      socket.write(`${head}\r\nConnection: close\r\n\r\n`)
    })
  const host = `Host: 127.0.0.1:${port}`
  assert.match(await ask(`GET /health HTTP/1.1\r\n${host}`), / 200 /)
  assert.match(await ask(`GET /health HTTP/1.1\r\n${host}\r\nHost: evil.example`), / 400 /)
  assert.match(await ask(`GET http://evil.example/health HTTP/1.1\r\n${host}`), / 400 /)
  assert.match(await ask(`GET /api/whoami HTTP/1.1\r\n${host}\r\nAuthorization: a\r\nAuthorization: b`), / 400 /)
  await app.close()
  await database.drop()
})

test('origins: only the server itself', () => {
  const guards = createGuards(PUBLIC)
  const allowed = [
    ['http://127.0.0.1:8787', '127.0.0.1:8787'],
    ['http://localhost', 'localhost:80'],
    ['https://patchcord.example.com', 'patchcord.example.com:443'],
    ['https://patchcord.example.com', '127.0.0.1:8787'],
  ]
  for (const [origin = '', host = ''] of allowed) assert.ok(guards.isOriginAllowed(origin, host), origin)
  const refused = ['null', '', 'http://evil.example', 'http://127.0.0.1:9', 'http://localhost:8787', 'file://']
  const tricks = ['http://127.0.0.1:8787/', 'http://evil@127.0.0.1:8787', 'http://127.0.0.1:8787, http://evil.example']
  for (const origin of [...refused, ...tricks, 'http://patchcord.example.com']) {
    assert.equal(guards.isOriginAllowed(origin, '127.0.0.1:8787'), false, origin)
  }
})

describe('the guards of a server', () => {
  let database: TestDatabase
  let app: TestApp
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { config: { publicUrl: PUBLIC } })
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  /** `fetch` sets Host itself. */
  function ask(method: string, path: string, headers: Record<string, string>) {
    return new Promise<{ status: number | undefined; json: unknown }>((resolve, reject) => {
      const outgoing = request(`${app.url}${path}`, { method, headers, agent: false }, (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (part: string) => {
          text += part
        })
        response.on('end', () => resolve({ status: response.statusCode, json: JSON.parse(text) }))
      })
      outgoing.on('error', reject)
      outgoing.end()
    })
  }

  test('a name that was made to point here is refused before authentication, on every path and method', async () => {
    for (const [method, path] of [
      ['GET', '/api/whoami'],
      ['POST', '/mcp'],
      ['GET', '/mcp/bearer'],
      ['DELETE', '/mcp'],
      ['GET', '/health'],
      ['OPTIONS', '/api/messages'],
      ['GET', '/.well-known/oauth-authorization-server'],
      ['GET', '/nowhere'],
    ] as const) {
      const answer = await ask(method, path, { host: 'rebound.example' })
      assert.deepEqual(answer, { status: 421, json: MISDIRECTED }, `${method} ${path}`)
    }
  })

  test('a page of another site is refused with 403, also with a preflight', async () => {
    for (const [method, path] of [
      ['GET', '/api/whoami'],
      ['POST', '/mcp'],
      ['OPTIONS', '/mcp'],
      ['GET', '/health'],
    ] as const) {
      const answer = await ask(method, path, { origin: 'https://evil.example' })
      assert.deepEqual(answer, { status: 403, json: FORBIDDEN }, `${method} ${path}`)
    }
  })

  test('the public name and its origin reach the server', async () => {
    const answer = await ask('GET', '/health', { host: PUBLIC.host, origin: PUBLIC.origin })
    assert.equal(answer.status, 200)
  })
})
