import { foundNamespace } from '../../server/domain/namespaces.ts'
import { startTestApp, type TestApp, type TestAppOptions } from './app.ts'
import { type Browser, browseAs } from './dashboard.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'
import { joinAs, type SeededPerson, signInOperator } from './people.ts'

/** The namespace `acme` with one person of each role, and somebody who belongs to another one. */
export interface Stage {
  database: TestDatabase
  app: TestApp
  owner: SeededPerson
  admin: SeededPerson
  member: SeededPerson
  stranger: SeededPerson
  /** A browser in which this person is signed in. */
  browse(person: SeededPerson): Browser
  close(): Promise<void>
}

export async function startStage(options: TestAppOptions = {}): Promise<Stage> {
  const database = await createTestDatabase()
  const app = await startTestApp(database, options)
  const owner = await signInOperator(database)
  await foundNamespace(owner.scope, { name: 'acme' })
  await foundNamespace(owner.scope, { name: 'elsewhere' })
  return {
    database,
    app,
    owner,
    admin: await joinAs(database, owner, 'acme', 'admin', 'Ann'),
    member: await joinAs(database, owner, 'acme', 'member', 'Max'),
    stranger: await joinAs(database, owner, 'elsewhere', 'admin', 'Eve'),
    browse: (person) => browseAs(app, person),
    async close() {
      await app.close()
      await database.drop()
    },
  }
}
