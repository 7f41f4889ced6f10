import { existsSync, rmSync } from 'node:fs'
import { mkdtemp, readdir } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { join, relative } from 'node:path'

/** Where programs of ours find folders, servers and tokens of a person. */
const PERSONAL = /^(?:XDG_\w+|CLAUDE_\w+|CODEX_\w+|PATCHCORD_(?!TEST_)\w+|DATABASE_\w+|SUPABASE_\w+)$/

export interface RunHome {
  /** Files that somebody has put there, by their path in it. */
  listFiles(): Promise<string[]>
}

/**
 * An empty HOME for the whole run, in place of the home of whoever runs the tests: nothing of theirs decides a test, and a
 * program that a test forgot to keep to itself writes where it is found.
 */
export async function isolateHome(): Promise<RunHome> {
  // git refuses a checkout of somebody else's but for what stands there, and only reads it.
  const gitConfig = join(homedir(), '.gitconfig')
  if (existsSync(gitConfig)) process.env.GIT_CONFIG_GLOBAL ??= gitConfig
  const home = await mkdtemp(join(tmpdir(), 'patchcord-run-'))
  process.once('exit', () => rmSync(home, { recursive: true, force: true, maxRetries: 3 }))
  for (const name of Object.keys(process.env)) if (PERSONAL.test(name)) delete process.env[name]
  process.env.HOME = home
  process.env.USERPROFILE = home
  return {
    async listFiles() {
      const entries = await readdir(home, { recursive: true, withFileTypes: true })
      const files = entries.filter((entry) => !entry.isDirectory())
      return files.map((file) => relative(home, join(file.parentPath, file.name)))
    },
  }
}
