import type { Account } from './account.ts'
import type { Binaries } from './binaries.ts'
import { stopPostgres } from './postmaster.ts'
import { findRunning, removeForeign } from './postmaster-file.ts'

export interface OrphanOptions {
  /** The folder of the cluster. */
  folder: string
  account: Account | null
  binaries: Binaries
  log: (line: string) => void
}

/**
 * A killed server leaves its Postgres running on the data: that orphan is stopped, cleanly, and then started again as ours,
 * with this version's binaries and settings. A file that names a process which is none is put away.
 */
export async function stopOrphan({ folder, account, binaries, log }: OrphanOptions): Promise<void> {
  const orphan = await findRunning(folder)
  if (!orphan) return await removeForeign(folder)
  log('stopping the Postgres that an earlier server left running')
  await stopPostgres(orphan.pid, folder, { binaries, account })
}
