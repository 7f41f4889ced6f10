import { dirname, join } from 'node:path'
import { readSettings } from '../scripts/lib/config.mjs'

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
    lookup: (name) => env[name],
    forChild: (more = {}) => ({ ...env, ...more }),
  }
}
