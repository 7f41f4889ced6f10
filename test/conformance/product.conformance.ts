import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { createAgents } from '../helpers/loss.ts'
import { createTemporaryFolder, type RunningServer, startServer } from '../helpers/processes.ts'
import { PRODUCT } from './expected-product.ts'
import { assertConforms } from './helpers/conform.ts'

const REVISIONS = ['2025-11-25', '2026-07-28'] as const

let folder: { path: string; remove(): Promise<void> }
let server: RunningServer
let tokens: Map<string, string>
before(async () => {
  folder = await createTemporaryFolder()
  const dataDir = join(folder.path, 'data')
  server = await startServer({ dataDir })
  tokens = await createAgents(dataDir, 'acme', [...REVISIONS.map(toAgent)])
})
after(async () => {
  await server?.stop()
  await folder?.remove()
})

/** Each run has an agent of its own, and with it limits of its own. */
function toAgent(revision: string): string {
  return `tool-${revision}`
}

describe('the built server', () => {
  for (const revision of REVISIONS) {
    test(`conforms to ${revision} in all that a server for messages can have`, async (context) => {
      const token = tokens.get(toAgent(revision)) ?? ''
      await assertConforms(context, revision, { name: 'the built server', url: server.url, token }, PRODUCT[revision])
    })
  }
})
