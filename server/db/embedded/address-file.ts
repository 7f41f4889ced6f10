import { randomBytes } from 'node:crypto'
import { readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { writeDurably } from './secrets.ts'

const FILE = 'address'

/** Notes where the server of this data folder listens, for operator verbs beside it. */
export async function writeAddress(dataDir: string, origin: string): Promise<void> {
  const path = join(dataDir, FILE)
  const temporary = `${path}.${process.pid}.${randomBytes(6).toString('hex')}`
  await writeDurably(temporary, `${origin}\n`)
  await rename(temporary, path)
}

/** null: nothing listens, or nobody has noted it. One that was killed leaves its note until the next start. */
export async function readAddress(dataDir: string): Promise<string | null> {
  try {
    const text = (await readFile(join(dataDir, FILE), 'utf8')).trim()
    return URL.canParse(text) ? new URL(text).origin : null
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

export async function removeAddress(dataDir: string): Promise<void> {
  await rm(join(dataDir, FILE), { force: true })
}
