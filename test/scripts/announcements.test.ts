import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { Announcements } from '../../scripts/lib/announcements.mjs'
import { TIMES } from '../../scripts/lib/config.mjs'
import { Lease } from '../../scripts/lib/lease.mjs'
import { eventually } from './listener-process.ts'

/** More than what is remembered, and little of it: the oldest that are not pending are forgotten above 5,000. */
const MANY = 50_000

/** Announcements and a lease, as a listener joins them; lines are written at once, or by `write`. */
function setUp(context: TestContext, { isWrittenAtOnce = true } = {}) {
  const server = { isWell: false, told: new Set<string>(), largest: 0 }
  const unwritten: (() => void)[] = []
  const putLease = async ({ announced }: { announced: string[] }) => {
    if (!server.isWell) throw new Error('HTTP 503')
    for (const id of announced) server.told.add(id)
    server.largest = Math.max(server.largest, announced.length)
  }
  const lease = new Lease({
    api: { putLease, deleteLease: async () => {} },
    who: { session: 's', client: 'c', machine: 'm' },
    isHeard: () => true,
    log: () => {},
    times: { ...TIMES, leaseMs: 20, leaseAfterLineMs: 1 },
  })
  context.after(() => lease.end())
  let lines = 0
  const announcements = new Announcements({
    speak: (_kind, _from, onWritten) => {
      lines++
      if (isWrittenAtOnce) onWritten()
      else unwritten.push(onWritten)
    },
    onWritten: (id) => lease.noteAnnounced(id),
    onForgotten: (id) => lease.forget(id),
  })
  lease.setHearing(true)
  const write = () => unwritten.splice(0).forEach((tell) => void tell())
  return { server, lease, announcements, write, count: () => lines }
}

function createMessages(count: number) {
  return Array.from({ length: count }, () => ({ id: crypto.randomUUID(), from: 'alice' }))
}

test('while nobody confirms what was announced, only what may still be new is kept, and that is confirmed in the end', async (context) => {
  for (const isWrittenAtOnce of [true, false]) {
    const { server, announcements, write, count } = setUp(context, { isWrittenAtOnce })
    const waiting = createMessages(1_000)
    announcements.compare(waiting)
    const [first, ...others] = createMessages(MANY)
    for (const message of [first, ...others]) if (message !== undefined) announcements.hear(message)
    write()
    assert.equal(count(), 1_000 + MANY)
    server.isWell = true
    // What the inbox still holds although it was heard of so long ago.
    announcements.compare([...waiting, ...(first === undefined ? [] : [first])])
    write()
    const isTold = ({ id }: { id: string }) => server.told.has(id)
    await eventually(
      () => waiting.every(isTold) && first !== undefined && isTold(first) && isTold(others.at(-1) ?? first),
    )
    assert.ok(server.told.size <= 5_001, `${server.told.size} ids`)
    assert.ok(server.largest <= 500)
  }
})
