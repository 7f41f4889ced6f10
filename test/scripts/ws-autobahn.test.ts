import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { WebSocketClient } from '../../scripts/lib/ws.mjs'
import { AUTOBAHN, type Case } from '../fixtures/websocket/autobahn.ts'
import { Fuzzer } from './ws-autobahn.ts'
import { RawServer } from './ws-raw-server.ts'

/** The suite's client: sends each message back as it came. */
function echo(url: URL): Promise<void> {
  return new Promise((resolve) => {
    const client = new WebSocketClient(url, {
      onText: (text) => client.sendText(text),
      onBinary: (data) => client.sendBinary(data),
      onClose: () => resolve(),
    })
  })
}

/** What is wrong with the client in one case. */
async function run(each: Case): Promise<string[]> {
  let judged: Promise<string[]> | null = null
  const server = await RawServer.listen((connection) => {
    judged = Fuzzer.run(each, connection)
  })
  try {
    await echo(server.url)
    return (await judged) ?? ['the client never came']
  } finally {
    await server.close()
  }
}

describe('the client is OK, nowhere only NON-STRICT, in every case of the Autobahn test suite', () => {
  for (const [group, cases] of Object.entries(AUTOBAHN)) {
    test(`${group}: ${cases.length} cases`, async () => {
      const wrong: string[] = []
      for (let at = 0; at < cases.length; at += 8) {
        const batch = cases.slice(at, at + 8)
        const found = await Promise.all(batch.map(async (each) => ({ id: each.id, problems: await run(each) })))
        for (const { id, problems } of found) if (problems.length > 0) wrong.push(`${id}: ${problems.join('; ')}`)
      }
      assert.deepEqual(wrong, [])
    })
  }
})
