import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { indexWords, startIndexing } from '../../server/domain/search.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { say } from '../helpers/talk.ts'

describe('the index of words', () => {
  let database: TestDatabase
  let alice: SeededAgent
  before(async () => {
    database = await createTestDatabase()
    ;({ alice } = await seed(database, 'acme', ['alice'], { limits: { sendBurst: 1_000 } }))
  })
  after(() => database.drop())

  const isNoted = async (id: string) => {
    const [row] =
      await database.admin`select exists (select from patchcord.message_words where message_id = ${id}) as noted`
    return row?.noted as boolean
  }
  const note = (content: string) => say(alice, { to: 'alice', content })

  test('is filled a little later than messages are stored, by nobody who sends, and by one instance at a time', async () => {
    const id = await note('nobody waits for this')
    assert.equal(await isNoted(id), false)
    const lines: unknown[] = []
    const loops = [1, 2].map(() =>
      startIndexing({ sql: database.api, log: { warn: (details) => void lines.push(details) }, intervalMs: 20 }),
    )
    for (let waits = 0; !(await isNoted(id)); waits++) {
      assert.ok(waits < 400, 'its words are noted')
      await sleep(25)
    }
    await Promise.all(loops.map((loop) => loop.close()))
    assert.deepEqual(lines, [])
    const after = await note('after the end')
    await sleep(60)
    assert.equal(await isNoted(after), false, 'what is closed does nothing more')
    assert.equal(await indexWords(database.api), 1)
    assert.equal(await indexWords(database.api), 0)
  })

  test('also gets a message that was committed later than younger ones, up to a minute', async () => {
    const late = await note('late')
    const young = await note('young')
    // As if it had been under way when the younger one was noted.
    await indexWords(database.api)
    await database.admin`delete from patchcord.message_words where message_id = ${late}`
    assert.deepEqual([await isNoted(late), await isNoted(young)], [false, true])
    await indexWords(database.api)
    assert.equal(await isNoted(late), true)
  })

  test('takes the oldest first, so that a long backlog is worked off whole', async () => {
    const ids: string[] = []
    for (let count = 0; count < 7; count++) ids.push(await note(`backlog ${count}`))
    assert.equal(await indexWords(database.api, 3), 3)
    assert.deepEqual(await Promise.all(ids.map(isNoted)), [true, true, true, false, false, false, false])
    while ((await indexWords(database.api, 3)) > 0);
    assert.ok((await Promise.all(ids.map(isNoted))).every(Boolean))
  })

  test('has a bound for each message, whatever it holds, and goes with it', async () => {
    const texts = [
      'x'.repeat(50_000),
      Array.from({ length: 9_000 }, (_, n) => `${n}`)
        .join(' ')
        .slice(0, 50_000),
      '😀 '.repeat(20_000),
      '\'\\ \u0001 "<>&|!:*',
    ]
    const ids: string[] = []
    for (const text of texts) ids.push(await note(text))
    assert.equal(await indexWords(database.api), texts.length)
    assert.ok((await Promise.all(ids.map(isNoted))).every(Boolean))
    await database.admin`delete from patchcord.message_bodies where id = ${ids[0] ?? ''}`
    assert.equal(await isNoted(ids[0] ?? ''), false)
  })

  test('reads no message of another namespace for a search', async () => {
    const { eve } = await seed(database, 'evil', ['eve'], { limits: { sendBurst: 1_000 } })
    for (let count = 0; count < 100; count++) await say(eve, { to: 'eve', content: `common ${count}` })
    await note('common here')
    while ((await indexWords(database.api)) > 0);
    const plan = await database.admin.begin(async (sql) => {
      await sql`set local enable_seqscan = off`
      return await sql`
        explain (analyze, format json) select message_id from patchcord.message_words w
        where w.words @@ (patchcord.namespace_word(${alice.namespaceId})::tsquery && 'common'::tsquery)`
    })
    const text = JSON.stringify(plan)
    assert.match(text, /Bitmap Index Scan/)
    const rows = [...text.matchAll(/"Actual Rows":([\d.]+)/g)].map(([, count]) => Number(count))
    assert.ok(
      rows.every((count) => count <= 1),
      text,
    )
  })
})
