import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { WebSocketServer } from 'ws'
import { WebSocketClient } from '../../scripts/lib/ws.mjs'
import { FrameParser, OPCODE } from '../../scripts/lib/ws-frames.mjs'
import { acceptHandshake, RawServer, readClientFrames } from './ws-raw-server.ts'

const MIB = 1024 * 1024

/** Sends each message back, as a test suite for clients has it. */
function echo(url: URL): { client: InstanceType<typeof WebSocketClient>; closed: Promise<number> } {
  let client: InstanceType<typeof WebSocketClient> | undefined
  const closed = new Promise<number>((resolve) => {
    client = new WebSocketClient(url, {
      onText: (text) => client?.sendText(text),
      onBinary: (data) => client?.sendBinary(data),
      onClose: ({ code }) => resolve(code),
    })
  })
  return { client: client as InstanceType<typeof WebSocketClient>, closed }
}

/** A message of `fragmentBytes` per frame; `byte` fills it. */
function frameMessage(length: number, fragmentBytes: number, opcode: number, byte: number): Buffer {
  const frames: Buffer[] = []
  for (let at = 0; at < length; at += fragmentBytes) {
    const size = Math.min(fragmentBytes, length - at)
    const extra = size < 126 ? 0 : size < 65536 ? 2 : 8
    const frame = Buffer.alloc(2 + extra + size, byte)
    frame[0] = (at + size >= length ? 0x80 : 0) | (at === 0 ? opcode : OPCODE.continuation)
    frame[1] = extra === 0 ? size : extra === 2 ? 126 : 127
    if (extra === 2) frame.writeUInt16BE(size, 2)
    if (extra === 8) frame.writeBigUInt64BE(BigInt(size), 2)
    frames.push(frame)
  }
  return Buffer.concat(frames)
}

test('a server gets back messages of 64 KiB to 16 MiB, text and binary, whole and in fragments of 64 bytes to 256 kB', async () => {
  const server = await RawServer.listen(({ socket, request }) => void socket.write(acceptHandshake(request)))
  try {
    const { closed } = echo(server.url)
    while (server.connections.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    const connection = server.connections[0]
    assert.ok(connection)
    for (const [length, fragmentBytes] of [
      [65_536, 64],
      [65_536, 65_536],
      [MIB, 997],
      [4 * MIB, 64],
      [4 * MIB, 4 * MIB],
      [16 * MIB, 256 * 1000],
      [16 * MIB, 16 * MIB],
    ] as const) {
      for (const opcode of [OPCODE.text, OPCODE.binary]) {
        const chunks: Buffer[] = []
        let size = 0
        connection.socket.removeAllListeners('data')
        const whole = new Promise<void>((resolve) => {
          connection.socket.on('data', (chunk) => {
            chunks.push(chunk)
            size += chunk.length
            // 14: the header with a 64-bit length and the mask.
            if (size >= length + 14) resolve()
          })
        })
        connection.socket.write(frameMessage(length, fragmentBytes, opcode, 0x61))
        await whole
        const [frame, ...others] = readClientFrames(Buffer.concat(chunks))
        assert.equal(others.length, 0)
        assert.equal(frame?.opcode, opcode)
        assert.ok(frame?.payload.equals(Buffer.alloc(length, 0x61)), `${length} bytes in fragments of ${fragmentBytes}`)
      }
    }
    connection.socket.end(Buffer.from('880203e8', 'hex'))
    assert.equal(await closed, 1000)
  } finally {
    await server.close()
  }
})

test('the ws package gets back what it sends, fragmented and in a row', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: true, maxPayload: 32 * MIB })
  await once(server, 'listening')
  try {
    const { port } = server.address() as AddressInfo
    const connected = once(server, 'connection')
    const { closed } = echo(new URL(`ws://127.0.0.1:${port}/`))
    const [socket] = (await connected) as [import('ws').WebSocket]
    const texts = ['', 'é'.repeat(3 * MIB), '😀'.repeat(1000), 'a'.repeat(16 * MIB)]
    for (const text of texts) {
      const answer = once(socket, 'message')
      const half = Math.floor(text.length / 2)
      socket.send(text.slice(0, half), { fin: false })
      socket.ping('between')
      socket.send(text.slice(half), { fin: true })
      const [data, isBinary] = (await answer) as [Buffer, boolean]
      assert.equal(isBinary, false)
      assert.ok(data.equals(Buffer.from(text.slice(0, half) + text.slice(half))), `${text.length} characters`)
    }
    let count = 0
    const all = new Promise<void>((resolve) => {
      socket.on('message', () => {
        count += 1
        if (count === 1_000) resolve()
      })
    })
    for (let index = 0; index < 1_000; index++) socket.send(Buffer.alloc(16_384, index))
    await all
    socket.close(1000)
    assert.equal(await closed, 1000)
  } finally {
    await new Promise((resolve) => server.close(resolve))
  }
})

test('one message of 16 MiB takes about as long as 32 of 512 KiB, not 32 times as long', () => {
  const measure = (length: number, count: number, opcode: number) => {
    const bytes = frameMessage(length, 4 * 1024, opcode, 0x61)
    const started = process.cpuUsage()
    for (let run = 0; run < count; run++) {
      const parser = new FrameParser()
      for (let at = 0; at < bytes.length; at += 4 * 1024) parser.push(bytes.subarray(at, at + 4 * 1024))
    }
    const { user, system } = process.cpuUsage(started)
    return user + system
  }
  for (const opcode of [OPCODE.text, OPCODE.binary]) {
    measure(MIB, 4, opcode)
    // What else the process does, such as collecting garbage, can only add to one of the two: the best of several counts.
    const ratios = Array.from({ length: 8 }, () => measure(16 * MIB, 1, opcode) / measure(MIB / 2, 32, opcode))
    const ratio = Math.min(...ratios)
    assert.ok(ratio < 10, `16 MiB at once took ${ratio.toFixed(1)} times as long as in 32 messages`)
  }
})
