import { dirname, isAbsolute, join } from 'node:path'
import { readSettings } from '../scripts/lib/config.cjs'

type Settings = ReturnType<typeof readSettings>

/** What the environment says: the only file of plugin/ that reads it. */
export interface Environment {
  /** As the listener reads it: the identity, the user's folders. */
  settings: Settings
  /** PATCHCORD_TOKEN, also without PATCHCORD_URL. */
  token: string | undefined
  /** The user's own folder for Patchcord. */
  configFolder: string
  /** Where Claude Code keeps its plugins; null: nobody knows. */
  claudePlugins: string | null
  /** Where Claude Code logs its connections to MCP servers; null: nobody knows. */
  claudeLogs: string | null
  /** Any variable, for `--env NAME` and `${NAME}` in .mcp.json. */
  lookup(name: string): string | undefined
  /** For child processes: everything that was here, and more. */
  forChild(more?: Record<string, string>): NodeJS.ProcessEnv
}

export function readEnvironment(env: NodeJS.ProcessEnv = process.env): Environment {
  const settings = readSettings(env)
  const claude = env.CLAUDE_CONFIG_DIR || (env.HOME ? join(env.HOME, '.claude') : null)
  return {
    settings,
    token: env.PATCHCORD_TOKEN || undefined,
    configFolder: dirname(settings.trustFile),
    claudePlugins: claude === null ? null : join(claude, 'plugins'),
    claudeLogs: findClaudeLogs(env),
    lookup: (name) => env[name],
    forChild: (more = {}) => ({ ...env, ...more }),
  }
}

function findClaudeLogs(env: NodeJS.ProcessEnv): string | null {
  const name = 'claude-cli-nodejs'
  if (process.platform === 'win32') return env.LOCALAPPDATA ? join(env.LOCALAPPDATA, name, 'Cache') : null
  if (!env.HOME) return null
  if (process.platform === 'darwin') return join(env.HOME, 'Library', 'Caches', name)
  const cache = env.XDG_CACHE_HOME
  return join(cache !== undefined && isAbsolute(cache) ? cache : join(env.HOME, '.cache'), name)
}
