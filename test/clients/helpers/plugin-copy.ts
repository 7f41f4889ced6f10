import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, stat, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024
/** Neither what its user has git ignore everywhere, nor whom the folder belongs to, changes what is in the repository. */
const GIT = ['-c', `safe.directory=${ROOT.replace(/\/$/, '')}`, '-c', 'core.excludesFile=']

/** Names as a client wants them: `claude plugin install PLUGIN@MARKETPLACE`. */
export interface PluginCopy {
  folder: string
  plugin: string
  marketplace: string
}

/** Builds the command in the copy, as `npm ci && npm run build` does; its file. */
export async function buildCommand({ folder }: PluginCopy): Promise<string> {
  await cp(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true })
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  return join(folder, 'dist/plugin/cli/main.js')
}

/**
 * The repository as a clean clone with the changes of the working tree: what git tracks or would track, and nothing else, since a
 * client copies a folder with everything in it. It is its own marketplace.
 */
export async function copyPlugin(folder: string): Promise<PluginCopy> {
  const list = [...GIT, 'ls-files', '-z', '--cached', '--others', '--exclude-standard']
  const { stdout } = await promisify(execFile)('git', list, { cwd: ROOT, maxBuffer: OUTPUT_BYTES_MAX })
  for (const file of new Set(stdout.split('\0').filter(Boolean))) {
    const isThere = await stat(join(ROOT, file)).then(
      () => true,
      () => false,
    )
    // Deleted, and not yet committed.
    if (!isThere) continue
    await mkdir(dirname(join(folder, file)), { recursive: true })
    await cp(join(ROOT, file), join(folder, file))
  }
  const text = await readFile(join(folder, '.claude-plugin/marketplace.json'), 'utf8')
  const { name: marketplace, plugins } = JSON.parse(text) as { name: string; plugins: { name: string }[] }
  const plugin = plugins[0]?.name
  if (plugin === undefined) throw new Error('.claude-plugin/marketplace.json lists no plugin')
  return { folder, plugin, marketplace }
}
