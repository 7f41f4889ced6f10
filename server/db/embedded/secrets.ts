import { randomBytes } from 'node:crypto'
import { chmod, link, open, readFile, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { StartError } from '../../errors.ts'
import { prepareDataFolder } from './data-folder.ts'

const SECRET_BYTES = 32
const SECRET = /^[A-Za-z0-9_-]{43}$/

export interface Passwords {
  supabase_admin: string
  postgres: string
  patchcord_api: string
}
const ROLES = ['supabase_admin', 'postgres', 'patchcord_api'] as const

/** The key that signs tickets where the configuration names none: 32 random bytes, base64url, made at the first start. */
export async function readOrCreateSigningSecret(dataDir: string): Promise<string> {
  const path = join(await prepareDataFolder(dataDir), 'signing-secret')
  const text = await readOrCreate(path, randomSecret)
  if (SECRET.test(text)) return text
  throw new StartError(`The file ${path} is damaged: restore it, or remove it to make a new signing key.`)
}

/** The passwords of the cluster's roles, made before the cluster itself. */
export async function readOrCreatePasswords(dataDir: string): Promise<Passwords> {
  const make = () => JSON.stringify(Object.fromEntries(ROLES.map((role) => [role, randomSecret()])))
  await readOrCreate(passwordPath(dataDir), make)
  return (await findPasswords(dataDir)) as Passwords
}

/** null when there is no such file yet. */
export async function findPasswords(dataDir: string): Promise<Passwords | null> {
  const text = await readSecret(passwordPath(dataDir))
  return text === null ? null : parsePasswords(text, passwordPath(dataDir))
}

function passwordPath(dataDir: string): string {
  return join(dataDir, 'postgres-passwords.json')
}

function parsePasswords(text: string, path: string): Passwords {
  try {
    const passwords = JSON.parse(text) as Passwords
    if (ROLES.every((role) => SECRET.test(passwords[role]))) return passwords
  } catch {
    // Told below: to the operator both are one damaged file.
  }
  throw new StartError(`The file ${path} is damaged: restore it from a backup, the database opens with it only.`)
}

function randomSecret(): string {
  return randomBytes(SECRET_BYTES).toString('base64url')
}

async function readSecret(path: string): Promise<string | null> {
  try {
    const text = (await readFile(path, 'utf8')).trim()
    await chmod(path, 0o600)
    return text
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return null
    throw new StartError(`The file ${path} cannot be read (${code}): run as the user that owns the data folder.`)
  }
}

/** A link makes it whole or not at all, and of two that start at once the first one wins. */
async function readOrCreate(path: string, make: () => string): Promise<string> {
  const found = await readSecret(path)
  if (found !== null) return found
  const temporary = `${path}.${process.pid}.${randomBytes(6).toString('hex')}`
  await writeDurably(temporary, `${make()}\n`)
  try {
    await link(temporary, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    await unlink(temporary)
  }
  return (await readSecret(path)) ?? ''
}

/** A new file, 0600 and flushed. */
export async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
}
