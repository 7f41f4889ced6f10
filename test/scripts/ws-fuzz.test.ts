import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { checkStream, createRandom, createStream } from './ws-fuzz.ts'
import { acceptHandshake, RawServer } from './ws-raw-server.ts'
import { watchClient } from './ws-watch.ts'

const SEED = 20_260_729
const CHILD = fileURLToPath(new URL('./ws-fuzz-child.ts', import.meta.url))

test('100,000 mutated frame streams: as the ws package reads them, whatever the pieces, and in the same memory', async () => {
  const options = ['--expose-gc', '--import', import.meta.resolve('tsx'), CHILD]
  const { stdout } = await promisify(execFile)(process.execPath, options, { timeout: 240_000 })
  const { grownMiB, warm, ends } = JSON.parse(stdout) as {
    grownMiB: number
    warm: number
    ends: Record<string, number>
  }
  assert.ok(grownMiB < 10, `${grownMiB.toFixed(1)} MiB more after 80,000 streams`)
  // Streams that all ended in the same way would test little.
  for (const end of ['open', 'close 1000', 'close 1005', 'violation 1002', 'violation 1007', 'violation 1009']) {
    assert.ok((ends[end] ?? 0) > 500, `${end}: ${ends[end]}`)
  }
  assert.ok(warm > 5)
})

test('the same seed makes the same stream', () => {
  const [stream, again, other] = [7, 7, 8].map((index) => createStream(createRandom(SEED, index)))
  assert.deepEqual(stream, again)
  assert.notDeepEqual(stream, other)
})

test('the check of a stream fails where the ws package reads something else', () => {
  const bytes = Buffer.from('810141', 'hex')
  assert.equal(checkStream({ bytes, pieces: [bytes], messageBytesMax: 10 }), 'open')
  assert.throws(() => checkStream({ bytes, pieces: [bytes.subarray(1)], messageBytesMax: 10 }), /in pieces/)
})

test('1,000 mutated handshakes and streams over TCP: each connection ends in one onClose, the last of all calls', async () => {
  let index = 0
  const server = await RawServer.listen(async ({ socket, request }) => {
    const random = createRandom(SEED, index++)
    const header = Buffer.from(acceptHandshake(request))
    if (random(3) === 0) header[random(header.length)] = random(256)
    const { bytes, pieces } = createStream(random)
    socket.write(Buffer.concat([header, random(2) === 0 ? bytes : Buffer.alloc(0)]))
    for (const piece of random(2) === 0 ? pieces : []) {
      socket.write(piece)
      await new Promise((resolve) => setImmediate(resolve))
    }
    if (random(2) === 0) socket.destroy()
    else socket.end()
  })
  const ends = new Map<number, number>()
  const one = async () => {
    const { events, closed } = watchClient(server.url, { closeMs: 200 })
    const { code } = await closed
    ends.set(code, (ends.get(code) ?? 0) + 1)
    return events
  }
  try {
    for (let round = 0; round < 40; round++) {
      const all = await Promise.all(Array.from({ length: 25 }, one))
      await new Promise((resolve) => setImmediate(resolve))
      for (const events of all) assert.equal(events.indexOf('close'), events.length - 1, events.join())
    }
    assert.equal(server.connections.length, 1_000)
    assert.ok((ends.get(1002) ?? 0) > 20 && (ends.get(1006) ?? 0) > 20 && ends.size > 4, JSON.stringify([...ends]))
  } finally {
    await server.close()
  }
})
