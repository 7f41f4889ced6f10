import { readFile, realpath } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join, resolve } from 'node:path'
import { isRecord } from '../../scripts/lib/basics.cjs'
import { CommandError } from './errors.ts'
import { isWithin } from './files.ts'
import { findRoot, readVersion } from './programs.ts'

const LISTENER = 'scripts/subscribe.mjs'
/** As .claude-plugin/marketplace.json names both. */
const PLUGIN = 'patchcord'
const MARKETPLACE = 'patchcord'
/** What a rule or a shell would take for more than a character of a path. */
const SPECIAL = /["'`$\\*()\p{Cc}]/u

/**
 * What Claude Code must not ask about, so that a turn started by a wake can read and answer without a person: our tools, and
 * the listener by its whole path. A rule with a wildcard would let `node` run anything that ends in the same name. Throws where
 * the listener is in the project: whoever may edit that would run anything by this name.
 */
export async function listRules(claudePlugins: string | null, project: string): Promise<string[]> {
  const plugins = claudePlugins !== null && isPlain(claudePlugins) ? claudePlugins : null
  if (plugins !== null) await checkOutside(plugins, project)
  const folders = [...new Set([findRoot(), ...(plugins === null ? [] : await listCopies(plugins))])].filter(isPlain)
  for (const folder of folders) await checkOutside(folder, project)
  return ['mcp__patchcord', ...folders.map((folder) => `Bash(node "${join(folder, LISTENER)}")`)]
}

async function checkOutside(folder: string, project: string): Promise<void> {
  const [real, realProject] = [await resolveExisting(folder), await resolveExisting(project)]
  const isInside = [real, resolve(folder)].some((path) => path === realProject || isWithin(path, realProject))
  if (!isInside) return
  throw new CommandError(
    'rules_in_project',
    `${folder} is inside of this project, where what --allow allows could be changed by anybody who edits it. Nothing was written.`,
    { hint: 'Leave --allow out, or move it out of the project.' },
  )
}

/** The real path, as far as it is there. */
async function resolveExisting(path: string): Promise<string> {
  const real = await realpath(path).catch(() => null)
  if (real !== null) return real
  return dirname(path) === path ? path : join(await resolveExisting(dirname(path)), basename(path))
}

/** Every folder from which Claude Code may run the plugin. */
async function listCopies(claudePlugins: string): Promise<string[]> {
  // Where it will put this version, if it is not installed yet.
  const next = join(claudePlugins, 'cache', MARKETPLACE, PLUGIN, readVersion())
  const known = await Promise.all([listInstalled(claudePlugins), listInPlace(claudePlugins)])
  return [next, ...known.flat().filter(isPlain)]
}

/** Where Claude Code keeps its own copies of the plugin. */
async function listInstalled(claudePlugins: string): Promise<unknown[]> {
  const { plugins } = await readRecord(join(claudePlugins, 'installed_plugins.json'))
  const ours = Object.entries(isRecord(plugins) ? plugins : {}).filter(([name]) => name.startsWith(`${PLUGIN}@`))
  const places = ours.flatMap(([, installed]) => [installed].flat())
  return places.map((place) => isRecord(place) && place.installPath)
}

/** A marketplace that was added as a folder is read in place: the copy that was made of it is not what runs. */
async function listInPlace(claudePlugins: string): Promise<unknown[]> {
  const { [MARKETPLACE]: market } = await readRecord(join(claudePlugins, 'known_marketplaces.json'))
  const isFolder = isRecord(market) && isRecord(market.source) && market.source.source === 'directory'
  return isFolder ? [market.installLocation] : []
}

function isPlain(folder: unknown): folder is string {
  return typeof folder === 'string' && isAbsolute(folder) && !SPECIAL.test(folder)
}

async function readRecord(file: string): Promise<Record<string, unknown>> {
  try {
    const json: unknown = JSON.parse(await readFile(file, 'utf8'))
    return isRecord(json) ? json : {}
  } catch {
    // Claude Code is not here, or keeps its list in another way: the folder of this program is what is left.
    return {}
  }
}
