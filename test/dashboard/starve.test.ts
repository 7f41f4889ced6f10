import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createCode } from '../../server/domain/codes.ts'
import { call } from '../helpers/app.ts'
import { createBrowser } from '../helpers/dashboard.ts'
import { type Stage, startStage } from '../helpers/dashboard-stage.ts'
import { seed } from '../helpers/seed.ts'

let stage: Stage
before(async () => {
  stage = await startStage({ logLevel: 'error' })
})
after(() => stage?.close())

test('pages that take long, however many and whosever, leave agents connections to send by', {
  timeout: 60_000,
}, async () => {
  const { alice } = await seed(stage.database, 'agents', ['alice', 'bob'])
  let free = () => {}
  const isFree = new Promise<void>((resolve) => {
    free = resolve
  })
  // Every page asks who is there, and waits here for the answer.
  let hold: Promise<unknown> | undefined
  await new Promise<void>((locked) => {
    hold = stage.database.admin.begin(async (sql) => {
      await sql`lock table patchcord.sessions in access exclusive mode`
      locked()
      await isFree
    })
  })
  const member = stage.browse(stage.member)
  const pages = Array.from({ length: 30 }, (_, index) => {
    if (index % 2 === 0) return member.get('/n/acme/activity')
    const nobody = createBrowser(stage.app)
    nobody.cookies.set('__Host-patchcord', createCode())
    return nobody.get('/account')
  })
  try {
    const send = call(stage.app, 'POST', '/api/messages', { token: alice.token, body: { to: 'bob', content: 'hi' } })
    const answer = await Promise.race([send, new Promise<null>((resolve) => setTimeout(resolve, 4_000, null))])
    assert.ok(answer, 'the message waited for the pages')
    assert.ok(answer.status < 300, String(answer.status))
  } finally {
    free()
    await hold
  }
  const statuses = (await Promise.all(pages)).map(({ status }) => status)
  assert.deepEqual([...new Set(statuses)].sort(), [200, 303], 'the pages came, too')
})
