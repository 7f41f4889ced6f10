import assert from 'node:assert/strict'
import { describe, type TestContext, test } from 'node:test'
import {
  type RecordedFrame,
  type Script,
  type ScriptedConnection,
  ScriptedServer,
  type UpgradeScript,
} from '../helpers/scripted-server.ts'
import { eventually, Home, type ListenerProcess, pause } from './listener-process.ts'
import {
  hasChanges,
  type JoinRecording,
  listRecordings,
  listRefusedUpgrades,
  readReason,
} from './listener-recordings.ts'

/** A busy machine may take this long for what has no time of its own in a recording; given up earlier it is one connection more. */
const PATIENT = { httpMs: 20_000, handshakeMs: 20_000, joinMs: 20_000, subscribedMs: 20_000 }
/** Many faults in a row: no line is held back, and no fault waits for the ones before it. */
const QUICK = { ...PATIENT, backoffMs: [20, 40], lineBurst: 10_000, lineGapMs: 0 }

async function start(context: TestContext, script: Script = {}, times = {}) {
  const server = await new ScriptedServer(script).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  const listener = home.start({ times: { ...QUICK, ...times } })
  await listener.logged(/^subscribe: connected$/m)
  return { server, listener }
}

interface Meeting {
  server: ScriptedServer
  listener: ListenerProcess
}

function count(text: string, part: string): number {
  return text.split(part).length - 1
}

/** One fault, and what must follow: it is told, what it cost is announced, and a new connection hears. */
async function meet({ server, listener }: Meeting, fault: JoinRecording, delayMsMax: number, index: number) {
  const reason = readReason(fault)
  const toldBefore = count(listener.stderr, reason)
  const connectedBefore = count(listener.stderr, 'subscribe: connected\n')
  // The one that meets the fault. Noted, and its message sent, at its join: on a busy machine the next one may have joined and
  // compared before we look again.
  let played: ScriptedConnection | null = null
  const play: RecordedFrame[] = fault.frames
  server.script.kind = hasChanges(fault) ? 'postgres_changes' : 'broadcast'
  server.script.join = () => {
    if (played !== null) return 'ok'
    played = server.connection
    server.deliver(`missed-${index}`, { isWoken: false })
    return { play, delayMsMax }
  }
  server.connection.socket.close(1012)
  await eventually(() => played !== null)
  await eventually(
    () => count(listener.stderr, reason) > toldBefore,
    () => `${fault.name} is not told as "${reason}":\n${listener.stderr.slice(-2_000)}`,
  )
  await listener.line(`PATCHCORD: 1 new from missed-${index}`)
  await eventually(() => server.connection !== played && server.connection.joinRef !== null)
  await eventually(() => count(listener.stderr, 'subscribe: connected\n') > connectedBefore)
  // It hears again, over Realtime alone: nothing is in the inbox.
  const id = crypto.randomUUID()
  if (server.script.kind === 'broadcast') server.connection.wake({ id, from: `after-${index}`, to: 'bob' })
  else server.connection.insert({ ...ROW, id, from_agent: `after-${index}` })
  await listener.line(`PATCHCORD: 1 new from after-${index}`)
}

const ROW = { namespace_id: 'acme', to_agent: 'bob', wake_at: '2026-11-29T11:00:00+00:00' }

async function meetAll(context: TestContext, kind: JoinRecording['kind'], delayMsMax: number) {
  const meeting = await start(context)
  const faults = listRecordings(kind)
  assert.ok(faults.length > 0)
  for (const [index, fault] of faults.entries()) await meet(meeting, fault, delayMsMax, index)
  assert.equal(meeting.listener.lines.length, 2 * faults.length, meeting.listener.stdout)
  return { ...meeting, faults }
}

describe('one listener in a row survives every recorded', { concurrency: 8 }, () => {
  test('refusal of a join', async (context) => {
    await meetAll(context, 'refused join', 20)
  })

  test('error after a join that was answered with ok, without ever having called itself connected', async (context) => {
    const { server, listener, faults } = await meetAll(context, 'ok, then an error', 30)
    const healthy = server.connections.length - faults.length
    // Each fault closes one healthy connection, meets one bad one and ends with the next healthy one.
    assert.equal(count(listener.stderr, 'subscribe: connected\n'), healthy)
  })

  test('end of a topic whose socket lives on', async (context) => {
    await meetAll(context, 'topic ends', 150)
  })

  test('end of a socket', async (context) => {
    const { listener } = await meetAll(context, 'socket ends', 150)
    assert.match(listener.stderr, /code=1012/)
  })

  test('refusal of a WebSocket handshake', async (context) => {
    const answers = listRefusedUpgrades()
    let index = 0
    const upgrade = (): UpgradeScript => answers[index++] ?? 'accept'
    const { server, listener } = await start(context, { upgrade })
    for (const { status } of answers) assert.ok(listener.stderr.includes(`subscribe: ws error: HTTP ${status}\n`))
    assert.equal(server.connections.length, 1)
    assert.equal(server.count('GET', '/api/realtime/ticket'), answers.length + 1)
    assert.equal(listener.stdout, '')
  })
})

describe('as recorded', { concurrency: 8 }, () => {
  testTimes()
  testGap()
  testRows()
})

function testTimes() {
  test('a join that is refused 5 s late is waited for and told', async (context) => {
    const meeting = await start(context)
    const [fault] = listRecordings('refused join')
    const startedAt = performance.now()
    await meet(meeting, fault as JoinRecording, 10_000, 0)
    assert.ok(performance.now() - startedAt > 5_000)
  })

  test('"Subscribed" from a dead poller is believed by nobody: the inbox is compared', async (context) => {
    const [dead] = listRecordings('deaf')
    const join = () => ({ play: dead?.frames ?? [], delayMsMax: 10_000 })
    const startedAt = performance.now()
    const { server, listener } = await start(context, { kind: 'postgres_changes', join }, { compareMs: 500 })
    // Only the system message makes it connected: 2.5 s after the reply.
    assert.ok(performance.now() - startedAt > 2_000)
    await pause(600)
    server.deliver('alice', { isWoken: false })
    await listener.line('PATCHCORD: 1 new from alice')
    await listener.logged(/^subscribe: ws error: 1 new without a word from Realtime$/m)
  })
}

function testGap() {
  test('a message between the ok of a join and its "Subscribed" is not lost', async (context) => {
    const [cold] = listRecordings('deaf')
    const server = await new ScriptedServer({ kind: 'postgres_changes' }).listen()
    const home = await Home.create()
    context.after(async () => {
      await home.remove()
      await server.close()
    })
    await home.connect(server.origin)
    server.script.join = () => ({ play: cold?.frames ?? [], delayMsMax: 1_000 })
    const listener = home.start({ times: QUICK })
    await eventually(() => server.connections.length === 1 && server.connection.joinRef !== null)
    // After the comparison that follows the reply, before the system message.
    await pause(600)
    assert.doesNotMatch(listener.stderr, /connected/)
    assert.equal(server.count('PUT', '/api/lease'), 0)
    server.deliver('gap', { isWoken: false })
    await listener.line('PATCHCORD: 1 new from gap')
    await listener.logged(/^subscribe: connected$/m)
  })
}

function testRows() {
  test('updates, deletes, cut and unauthorised rows write no line; the inbox decides', async (context) => {
    for (const recording of listRecordings('rows')) {
      const join = () => ({ play: recording.frames, delayMsMax: 600 })
      const { server, listener } = await start(context, { kind: 'postgres_changes', join })
      const before = server.count('GET', '/api/inbox')
      await eventually(
        () => server.count('GET', '/api/inbox') > before,
        () => `${recording.name}: the inbox is not looked at`,
      )
      await pause(300)
      assert.equal(listener.stdout, '', recording.name)
      server.deliver('alice', { isWoken: false })
      server.connection.play(recording.frames.at(-1) as RecordedFrame, {
        ...(server.connection.frames[0] as NonNullable<(typeof server.connection.frames)[0]>),
      })
      await listener.line('PATCHCORD: 1 new from alice')
    }
  })

  test('a row of another namespace or for another agent writes no line', async (context) => {
    const { server, listener } = await start(context, { kind: 'postgres_changes' })
    const row = { ...ROW, from_agent: 'mallory' }
    server.connection.insert({ ...row, id: crypto.randomUUID(), namespace_id: 'evil' })
    server.connection.insert({ ...row, id: crypto.randomUUID(), to_agent: 'carol' })
    server.connection.insert({ ...row, id: crypto.randomUUID(), from_agent: 'alice' })
    await listener.line('PATCHCORD: 1 new from alice')
    await pause(300)
    assert.equal(listener.lines.length, 1)
  })
}
