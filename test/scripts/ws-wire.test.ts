import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { FrameCase } from '../fixtures/websocket/frames.ts'
import { frameCases } from '../fixtures/websocket/frames.ts'
import { parseBytes } from '../fixtures/websocket/notation.ts'
import { acceptHandshake, listReplies, RawServer } from './ws-raw-server.ts'
import { watchClient, watchWs } from './ws-watch.ts'

/** The cases at the client's own limit, which is what its user gets. */
const cases = Object.values(frameCases)
  .flat()
  .filter(({ messageBytesMax }) => messageBytesMax === undefined)

/** What must be called back and sent for the events of a case. */
function expectOf(events: string[]): { called: string[]; replies: string[] } {
  const replies = events.flatMap((event) => {
    const [type, value = ''] = event.split(' ')
    if (type === 'ping') return [`pong ${parseBytes(value).bytes.toString('hex')}`.trimEnd()]
    if (type === 'violation' || type === 'close') return [value === '1005' ? 'close' : `close ${value}`]
    return []
  })
  return { called: ['open', ...events.filter((event) => /^(?:text|binary)\b/.test(event)), 'close'], replies }
}

/** Serves the bytes of a case behind the handshake, then ends; the client must have ended by itself. */
async function serveCase(frameCase: FrameCase, run: (url: URL) => Promise<void>): Promise<string[]> {
  const { bytes } = parseBytes(frameCase.bytes)
  const server = await RawServer.listen(({ socket, request }) => {
    socket.end(Buffer.concat([Buffer.from(acceptHandshake(request)), bytes]))
  })
  try {
    await run(server.url)
    const connection = server.connections[0]
    await connection?.closed
    assert.equal(server.socketCount, 1, frameCase.name)
    return listReplies(connection?.received ?? Buffer.alloc(0))
  } finally {
    await server.close()
  }
}

test(`${cases.length} cases over TCP: the client calls back its messages, pongs each ping and closes with the code`, async () => {
  for (const frameCase of cases) {
    const { called, replies } = expectOf(frameCase.events)
    const sent = await serveCase(frameCase, async (url) => {
      const { events, closed } = watchClient(url)
      const { code } = await closed
      assert.deepEqual(events, called, frameCase.name)
      const last = /^(?:close|violation) (\d+)/.exec(frameCase.events.at(-1) ?? '')?.[1]
      assert.equal(code, Number(last ?? 1006), frameCase.name)
    })
    assert.deepEqual(sent, replies, frameCase.name)
  }
})

test('the client of the ws package calls back and sends the same, but for the differences in the table', async () => {
  for (const frameCase of cases) {
    const { called, replies } = expectOf(frameCase.ws?.events ?? frameCase.events)
    const sent = await serveCase(frameCase, async (url) => {
      assert.deepEqual((await watchWs(url)).events, called, frameCase.name)
    })
    assert.deepEqual(sent, replies, frameCase.name)
  }
})
