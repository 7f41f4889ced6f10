import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { readStatus } from '../../scripts/lib/runtime-folder.mjs'
import { StatusWriter } from '../../scripts/lib/status-writer.mjs'
import { TOKEN } from './listener-process.ts'

const identity = { base: 'https://server.example', token: TOKEN }

async function setUp(context: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'patchcord-status-'))
  const logs: string[] = []
  const log = (text: string) => void logs.push(text)
  const writer = new StatusWriter({ folder, identity, agent: 'bob', namespace: 'acme', log })
  context.after(async () => {
    writer.end()
    await rm(folder, { recursive: true, force: true })
  })
  const told: unknown[] = []
  const heard = writer.watch({
    compare: (pending) => told.push(pending),
    hear: (message) => void told.push(message),
  })
  return { folder, logs, writer, heard, told }
}

test('a message that is heard of while the inbox answers is counted, though the answer does not hold it', async (context) => {
  const { folder, writer, heard, told } = await setUp(context)
  writer.setConnected(true)
  heard.hear({ id: 'heard', from: 'alice' })
  heard.compare([{ id: 'waiting', from: 'carol' }])
  writer.end()
  assert.equal((await readStatus(folder, identity))?.new, 2)
  heard.compare([{ id: 'heard', from: 'alice' }])
  writer.end()
  assert.equal((await readStatus(folder, identity))?.new, 1)
  assert.equal(told.length, 3)
})

test('however many wakes come, no more are counted, or kept, than an inbox has room for', async (context) => {
  const { folder, writer, heard, told } = await setUp(context)
  for (let count = 0; count < 20_000; count++) heard.hear({ id: `id-${count}`, from: 'alice' })
  writer.end()
  assert.equal((await readStatus(folder, identity))?.new, 1_000)
  heard.compare(Array.from({ length: 900 }, (_, index) => ({ id: `waiting-${index}`, from: 'carol' })))
  writer.end()
  assert.equal((await readStatus(folder, identity))?.new, 1_000)
  assert.equal(told.length, 20_001)
})

test('a file that cannot be written is complained of once, and the listener hears on', async (context) => {
  const { folder, logs, writer, heard, told } = await setUp(context)
  writer.end()
  const [name = ''] = await readdir(folder)
  await rm(join(folder, name))
  await mkdir(join(folder, name, 'x'), { recursive: true })
  for (let count = 0; count < 3; count++) {
    heard.hear({ id: `id-${count}`, from: 'alice' })
    writer.end()
  }
  assert.equal(told.length, 3)
  assert.equal(logs.length, 1)
  assert.match(logs[0] ?? '', /^cannot write the status for hooks: /)
})
