/** A server with two agents, and machines on which one connects to it. */
import { after, before } from 'node:test'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { type CommandEnd, Machine, type RunOptions } from './command.ts'

type Agents = Record<'backend' | 'frontend', SeededAgent>

export interface Place {
  machine: Machine
  connect(options?: RunOptions & { as?: 'backend' | 'frontend' }, ...args: string[]): Promise<CommandEnd>
}

/** Call it in a suite. What it gives is there once the tests run. */
export function useServer() {
  let database: TestDatabase
  const app = {} as TestApp
  const agents = {} as Agents
  before(async () => {
    database = await createTestDatabase()
    Object.assign(app, await startTestApp(database))
    Object.assign(agents, await seed(database, 'acme', ['backend', 'frontend']))
  })
  after(async () => {
    await app.close()
    await database.drop()
  })
  const withMachine = (work: (place: Place) => Promise<void>) => async () => {
    const machine = await Machine.create()
    const connect: Place['connect'] = ({ as = 'backend', ...options } = {}, ...args) =>
      machine.run(['connect', '--server', app.url, '--token-stdin', ...args], {
        stdin: `${agents[as].token}\n`,
        ...options,
      })
    try {
      await work({ machine, connect })
    } finally {
      await machine.remove()
    }
  }

  return { app, agents, withMachine }
}
