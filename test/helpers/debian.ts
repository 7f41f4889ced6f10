import { execFile } from 'node:child_process'
import { access, constants } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const INSTALL_MS_MAX = 10 * 60_000
/** Another apt may run, as on a machine that was started just now; mirrors fail now and then. */
const APT = ['-o', 'DPkg::Lock::Timeout=300', '-o', 'Acquire::Retries=3', '-q']

/**
 * Makes sure of programs, each named with the Debian package that has it. Throws a sentence with the command to run where it may
 * not install them itself.
 */
export async function installPrograms(programs: Readonly<Record<string, string>>): Promise<void> {
  const packages = await listMissing(programs)
  if (packages.length === 0) return
  const command = `apt-get install -y ${packages.join(' ')}`
  if (process.getuid?.() !== 0) throw new Error(`programs are missing; run as root: ${command}`)
  if ((await findProgram('apt-get')) === null) {
    throw new Error(`programs are missing, and there is no apt-get: install what Debian calls ${packages.join(', ')}`)
  }
  console.log(command)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const options = { env, timeout: INSTALL_MS_MAX }
  // The lists of packages of a fresh image are often empty. Where one source of several fails, the others may do.
  await run('apt-get', [...APT, 'update'], options).catch((error: Error) => console.log(error.message))
  await run('apt-get', [...APT, 'install', '-y', '--no-install-recommends', ...packages], options)
  const still = await listMissing(programs)
  if (still.length > 0) throw new Error(`${command} did not bring ${still.join(', ')}`)
}

async function listMissing(programs: Readonly<Record<string, string>>): Promise<string[]> {
  const missing = new Set<string>()
  for (const [program, name] of Object.entries(programs)) if ((await findProgram(program)) === null) missing.add(name)
  return [...missing]
}

/** The path of a program, null when there is none. */
export async function findProgram(name: string): Promise<string | null> {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin']
  for (const folder of folders) {
    const file = join(folder, name)
    const isThere = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (isThere) return file
  }
  return null
}
