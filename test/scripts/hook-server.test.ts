import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { findAddress } from '../../scripts/lib/hook-server.cjs'
import { createHttpClient } from '../../scripts/lib/http.cjs'
import { createCertificate } from './certificate.ts'
import { type HookAnswer, HookServer, runHook, setUpHooks as setUp } from './hook-process.ts'
import { TOKEN } from './listener-process.ts'

/** What a hook may take at most, on a machine that has other things to do: it must not hang, how long exactly is measured elsewhere. */
const PATIENCE_MS = 8_000
const PATHS = ['/api/inbox', '/api/presence', '/api/agents', '/health']
const EVENTS = ['SessionStart', 'UserPromptSubmit', 'PostToolUse', 'Stop', 'SessionEnd']

function event(name: string, session = 'session-1') {
  return { hook_event_name: name, session_id: session, prompt: 'hello', source: 'startup' }
}

/** Everything that a server may do instead of answering. */
const FAULTS: Record<string, HookAnswer | ((response: ServerResponse) => void)> = {
  'never answers': 'hang',
  'is cut off': (response) => void response.socket?.destroy(),
  'says that it is down': { status: 503, json: { error: { code: 'unavailable' } }, headers: { 'retry-after': '1' } },
  'refuses the token': { status: 401, json: { error: { code: 'token_rejected' } } },
  'answers in HTML': { text: '<html>log in</html>', headers: { 'content-type': 'text/html' } },
  'answers with the wrong JSON': { json: [{ pending: 7 }] },
  'names an agent that is none': { json: { agent_id: 'A b', namespace_id: 'x\ny', pending: [{ message_id: 'a' }] } },
  'holds no messages but junk': {
    json: {
      agent_id: 'bob',
      namespace_id: 'acme',
      pending: [null, 7, {}, { message_id: 'a b' }, { message_id: {} }],
      agents: [null, 7, {}, { is_you: true, agent: {} }],
    },
  },
  'answers without an end': (response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    const timer = setInterval(() => response.write(' '), 20)
    response.on('close', () => clearInterval(timer))
  },
  'answers far too much': (response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.write('['.repeat(2 * 1024 * 1024))
  },
}

describe('a server that', { concurrency: 3 }, () => {
  for (const [name, fault] of Object.entries(FAULTS)) {
    test(`${name} costs a moment, and nothing is said`, async (context) => {
      const { server, home } = await setUp(context)
      for (const path of PATHS) server.answers[path] = fault
      for (const hook of EVENTS) {
        // The time that a hook has without being told otherwise.
        const result = await runHook(home, event(hook), { env: { PATCHCORD_HOOK_MS: '' } })
        const { code, stdout, stderr } = result
        assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: '', stderr: '' }, hook)
        assert.ok(result.ms < PATIENCE_MS, `${hook}: ${result.ms} ms`)
      }
      assert.ok(server.requests.length > 0)
    })
  }

  test('sends the hook elsewhere is not followed', async (context) => {
    const { server, home } = await setUp(context)
    const other = await HookServer.open()
    context.after(() => other.close())
    for (const path of PATHS) server.answers[path] = { status: 307, headers: { location: `${other.origin}${path}` } }
    for (const hook of EVENTS) assert.equal((await runHook(home, event(hook))).stdout, '')
    assert.equal(other.connectionCount, 0)
  })

  test('is gone is no matter', async (context) => {
    const { server, home } = await setUp(context)
    await server.close()
    for (const hook of EVENTS) {
      const { code, stdout, stderr } = await runHook(home, event(hook))
      assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: '', stderr: '' }, hook)
    }
  })

  test('speaks TLS is asked where its certificate is trusted, and gets no request where it is not', async (context) => {
    const tls = createCertificate()
    const { server, home } = await setUp(context, tls)
    server.deliver('alice')
    for (const env of [{}, { NODE_TLS_REJECT_UNAUTHORIZED: '0' }]) {
      assert.equal((await runHook(home, event('Stop', 'session-0'), { env })).stdout, '')
    }
    assert.equal(server.requests.length, 0)
    const file = join(home.root, 'ca.pem')
    await writeFile(file, tls.cert)
    assert.match((await runHook(home, event('Stop'), { env: { NODE_EXTRA_CA_CERTS: file } })).stdout, /"block"/)
  })
})

test('a name service that answers one kind of question only is enough where that answer is an address', async (context) => {
  const service = createSocket('udp4')
  await new Promise<void>((resolve) => service.bind(0, '127.0.0.1', resolve))
  context.after(() => service.close())
  const answers = new Map<number, (question: Buffer) => Buffer>()
  service.on('message', (question, { port, address }) => {
    const answer = answers.get(question.readUInt16BE(question.length - 4))?.(question)
    if (answer !== undefined) service.send(answer, port, address)
  })
  const at = [`127.0.0.1:${(service.address() as AddressInfo).port}`]
  const [A, AAAA] = [1, 28]
  answers.set(A, (question) => answerQuestion(question, A, Buffer.from([10, 1, 2, 3])))
  assert.deepEqual(await findAddress('server.example', PATIENCE_MS, at), { address: '10.1.2.3' })
  answers.set(A, (question) => answerQuestion(question, A, null))
  answers.set(AAAA, (question) => answerQuestion(question, AAAA, Buffer.from(`${'00'.repeat(15)}01`, 'hex')))
  assert.deepEqual(await findAddress('server.example', PATIENCE_MS, at), { address: '::1' })
  answers.set(AAAA, (question) => answerQuestion(question, AAAA, null))
  assert.deepEqual(await findAddress('server.example', PATIENCE_MS, at), {}, 'the system may know it from a file')
  answers.delete(AAAA)
  assert.equal(await findAddress('server.example', 300, at), null, 'the system would wait for the other answer')
})

/** RFC 1035 §4.1: the question again, with one record, or with none. The question may carry an additional record (EDNS). */
function answerQuestion(question: Buffer, type: number, data: Buffer | null): Buffer {
  const head = Buffer.from(question.subarray(0, 12))
  head.writeUInt16BE(0x8180, 2)
  head.writeUInt16BE(data === null ? 0 : 1, 6)
  head.writeUInt32BE(0, 8)
  const end = question.indexOf(0, 12) + 5
  const record = Buffer.alloc(12)
  record.writeUInt16BE(0xc00c, 0)
  record.writeUInt16BE(type, 2)
  record.writeUInt16BE(1, 4)
  record.writeUInt32BE(60, 6)
  record.writeUInt16BE(data?.length ?? 0, 10)
  return Buffer.concat([head, question.subarray(12, end), ...(data === null ? [] : [record, data])])
}

test('a host whose address is known is not looked up, and its name is what the certificate must be for', async (context) => {
  const { server: plain } = await setUp(context)
  const tls = createCertificate()
  const { server: secure } = await setUp(context, tls)
  const client = createHttpClient()
  const ask = (origin: string, host: string) => {
    const url = `${origin.replace(/127\.0\.0\.1|localhost/, host)}/health`
    return client.requestJson({ method: 'GET', url, token: TOKEN, timeoutMs: PATIENCE_MS, address: '127.0.0.1' })
  }
  assert.equal((await ask(plain.origin, 'server.example')).status, 200)
  await assert.rejects(ask(secure.origin, 'server.example'), { code: /CERT|ALTNAME/ })
  assert.equal(secure.requests.length, 0)
})

test('a name service that does not answer is noticed in time, and one that knows no name is alive', async (context) => {
  const silent = createSocket('udp4')
  await new Promise<void>((resolve) => silent.bind(0, '127.0.0.1', resolve))
  const refusing = createSocket('udp4')
  await new Promise<void>((resolve) => refusing.bind(0, '127.0.0.1', resolve))
  context.after(() => [silent, refusing].map((socket) => socket.close()))
  // The question with the answer bit set and "no such name" (RFC 1035 §4.1.1).
  refusing.on('message', (question, { port, address }) => {
    const answer = Buffer.from(question)
    answer.writeUInt16BE(0x8183, 2)
    refusing.send(answer, port, address)
  })
  const at = (socket: typeof silent) => [`127.0.0.1:${(socket.address() as AddressInfo).port}`]
  const startedAt = performance.now()
  assert.equal(await findAddress('server.example', 200, at(silent)), null)
  assert.ok(performance.now() - startedAt < PATIENCE_MS)
  assert.deepEqual(await findAddress('server.example', PATIENCE_MS, at(refusing)), {})
  for (const host of ['localhost', '127.0.0.1', '[::1]']) assert.deepEqual(await findAddress(host, 1, at(silent)), {})
})
