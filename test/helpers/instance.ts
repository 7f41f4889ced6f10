import { openChannel } from '../../server/db/listen.ts'
import { listRecentRevocations } from '../../server/domain/tokens.ts'
import type { Job } from '../../server/metrics/metrics.ts'
import { startPeers } from '../../server/wakes/peers.ts'
import { startReadBack } from '../../server/wakes/read-back.ts'
import { startRevocations } from '../../server/wakes/revocations.ts'
import { startTestApp, type TestApp, type TestAppOptions } from './app.ts'
import type { TestDatabase } from './database.ts'

/** A whole server with everything between instances: peers, read-back and revocations, as main starts them. */
export async function startInstance(database: TestDatabase, options: TestAppOptions = {}): Promise<TestApp> {
  const app = await startTestApp(database, options)
  const { sql, bus, hub, waiters, logger: log, metrics } = app.deps
  const ran = (job: Job) => (isOk: boolean) => metrics?.jobRan(job, isOk)
  const readBack = startReadBack({ sql, bus, log, ran: ran('read_back') })
  const peers = await startPeers({
    open: (name, handlers) => openChannel(database.apiTarget, name, handlers),
    bus,
    log,
    onListening: () => readBack.now(),
    ran: ran('peers'),
  })
  const listRecent = (seconds: number, ids: string[]) => listRecentRevocations(sql, seconds, ids)
  const revocations = startRevocations({ holders: [hub, waiters], listRecent, log, ran: ran('revocations') })
  metrics?.read({ peersWaiting: () => peers.waiting })
  return {
    ...app,
    async close() {
      await app.close()
      await Promise.all([readBack.close(), peers.close(), revocations.close()])
    },
  }
}
