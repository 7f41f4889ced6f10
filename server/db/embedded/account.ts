import { readFile, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { StartError } from '../../errors.ts'

/** Whom Postgres runs as where the server itself runs as root, which Postgres refuses. */
export interface Account {
  name: string
  uid: number
  gid: number
}

/** A dedicated account where somebody made one; `nobody` needs no set-up at all. */
const CANDIDATES = ['patchcord', 'nobody', 'postgres']

/** null: the server's own user. `existing` is the cluster's folder: data that is already there keeps its owner. */
export async function chooseAccount(existing: string): Promise<Account | null> {
  if (process.getuid?.() !== 0) return null
  const accounts = parsePasswd(await readFile('/etc/passwd', 'utf8').catch(() => ''))
  const owner = await stat(existing).catch(() => null)
  const account =
    accounts.find((each) => owner !== null && owner.uid !== 0 && each.uid === owner.uid) ??
    CANDIDATES.map((name) => accounts.find((each) => each.name === name)).find((each) => each !== undefined)
  if (account) return account
  throw new StartError(
    'Postgres does not run as root and this system has no account "nobody": run Patchcord as another user, or set DATABASE_URL.',
  )
}

/** passwd(5). initdb refuses a uid without an entry, hence the look into the file. */
function parsePasswd(text: string): Account[] {
  return text
    .split('\n')
    .map((line) => line.split(':'))
    .filter((fields) => fields.length >= 7)
    .map(([name, , uid, gid]) => ({ name: name ?? '', uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 }))
}

/** The first folder on the way to `path`, itself included, that the account cannot enter; null when it reaches it. */
export async function findClosedFolder(path: string, account: Account): Promise<string | null> {
  const parent = dirname(path)
  const closedAbove = parent === path ? null : await findClosedFolder(parent, account)
  if (closedAbove) return closedAbove
  const { uid, gid, mode } = await stat(path)
  const bit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001
  return mode & bit ? null : path
}
