import { after, before, describe, test } from 'node:test'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { SHARED, SINGLE } from './expected-mount.ts'
import { createFixtureFactory } from './fixtures/server.ts'
import { assertConforms } from './helpers/conform.ts'

const KINDS = [
  { name: 'the mount with McpServers', isShared: false, expected: SINGLE },
  { name: 'the mount with Servers', isShared: true, expected: SHARED },
]

let database: TestDatabase
let agents: Record<'legacy' | 'modern', SeededAgent>
before(async () => {
  database = await createTestDatabase()
  agents = await seed(database, 'acme', ['legacy', 'modern'])
})
after(() => database?.drop())

for (const { name, isShared, expected } of KINDS) {
  describe(`${name} and fixtures behind it`, () => {
    let app: TestApp
    before(async () => {
      app = await startTestApp(database, { mcpFactory: createFixtureFactory({ isShared }) })
    })
    after(() => app?.close())

    test('conforms to 2025-11-25 but for what needs a session', async (context) => {
      const subject = { name, url: app.url, token: agents.legacy.token }
      await assertConforms(context, '2025-11-25', subject, expected['2025-11-25'])
    })

    test('conforms to 2026-07-28 in everything that the revision requires', async (context) => {
      const subject = { name, url: app.url, token: agents.modern.token }
      await assertConforms(context, '2026-07-28', subject, expected['2026-07-28'])
    })
  })
}
