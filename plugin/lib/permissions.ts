import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isRecord } from '../../scripts/lib/text.mjs'
import { findRoot, readVersion } from './programs.ts'

const LISTENER = 'scripts/subscribe.mjs'

/**
 * What Claude Code must not ask about, so that a turn started by a wake can read and answer without a person: our tools, and
 * the listener by its whole path. A rule with a wildcard would let `node` run anything that ends in the same name.
 */
export async function listRules(claudePlugins: string | null): Promise<string[]> {
  const copies = claudePlugins === null ? [] : [copyOf(claudePlugins), ...(await listInstalled(claudePlugins))]
  const folders = new Set([findRoot(), ...copies])
  return ['mcp__patchcord', ...[...folders].map((folder) => `Bash(node "${join(folder, LISTENER)}")`)]
}

/** Where Claude Code will put this version, if it is not installed yet. */
function copyOf(claudePlugins: string): string {
  return join(claudePlugins, 'cache', 'patchcord', 'patchcord', readVersion())
}

/** Where Claude Code keeps its own copies of the plugin. */
async function listInstalled(claudePlugins: string): Promise<string[]> {
  const text = await readFile(join(claudePlugins, 'installed_plugins.json'), 'utf8').catch(() => '')
  try {
    const json: unknown = JSON.parse(text)
    const plugins = isRecord(json) && isRecord(json.plugins) ? json.plugins : {}
    const ours = Object.entries(plugins).filter(([name]) => name.startsWith('patchcord@'))
    const places = ours.flatMap(([, installed]) => [installed].flat())
    return places.flatMap((place) =>
      isRecord(place) && typeof place.installPath === 'string' ? [place.installPath] : [],
    )
  } catch {
    // Claude Code is not here, or keeps its list in another way: the folder of this program is what is left.
    return []
  }
}
