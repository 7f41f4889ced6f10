import { after, before, describe, test } from 'node:test'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { MOUNT } from './expected-mount.ts'
import { createFixtureFactory } from './fixtures/server.ts'
import { assertConforms } from './helpers/conform.ts'

let database: TestDatabase
let app: TestApp
let agents: Record<'first' | 'second', SeededAgent>
before(async () => {
  database = await createTestDatabase()
  agents = await seed(database, 'acme', ['first', 'second'])
  app = await startTestApp(database, { mcpFactory: createFixtureFactory() })
})
after(async () => {
  await app?.close()
  await database?.drop()
})

describe('the mount of the server, with fixtures behind it', () => {
  test('conforms to 2025-11-25 but for what needs a session', async (context) => {
    await assertConforms(context, '2025-11-25', subject('first'), MOUNT['2025-11-25'])
  })

  test('conforms to 2026-07-28 in everything', async (context) => {
    await assertConforms(context, '2026-07-28', subject('second'), MOUNT['2026-07-28'])
  })
})

function subject(agent: 'first' | 'second') {
  return { name: 'the mount with fixtures', url: app.url, token: agents[agent].token }
}
