import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { GitFacts } from './git.ts'
import { findRoot } from './programs.ts'

const OTHERS = 0o077

/** What a person does next in each client, with everything filled in. */
export function describeNextSteps({
  url,
  variable,
  isAllowed,
}: {
  url: string
  variable: string | null
  isAllowed: boolean
}): string[] {
  const root = findRoot()
  return [
    'Claude Code, once on this machine:',
    `  claude plugin marketplace add ${quote(root)}`,
    '  claude plugin install patchcord@patchcord',
    `Then start claude in this folder and allow the server "patchcord" of .mcp.json: the listener starts by itself.`,
    ...(variable === null ? [] : [`  ${variable} must be set where claude is started.`]),
    ...(isAllowed ? [] : ['  patchcord connect --allow … lets it answer while nobody is there to be asked.']),
    '',
    'Codex:',
    `  codex plugin marketplace add ${quote(root)} && codex plugin add patchcord@patchcord`,
    '  Put this into .codex/config.toml of this folder, trust the folder, and keep the file out of git:',
    '    [mcp_servers.patchcord]',
    `    url = "${url}"`,
    ...(variable === null
      ? ['    http_headers = { "Authorization" = "Bearer THE TOKEN" }']
      : [`    bearer_token_env_var = "${variable}"`]),
    '  Then start codex and review the hooks with /hooks: an unreviewed hook is skipped in silence.',
  ]
}

function quote(path: string): string {
  return /^[\w./@+-]+$/.test(path) ? path : JSON.stringify(join(path))
}

export interface Written {
  file: string
  next: Buffer
  git: GitFacts
  isLiteral: boolean
}

/** What could hurt, and what to do about it. */
export async function describeWarnings({ file, next, git, isLiteral }: Written): Promise<string[]> {
  const warnings: string[] = []
  if (isLiteral && git.isRepository && git.isTracked === null) {
    warnings.push(`git could not be asked whether it tracks ${file}: do not commit it, it holds the token.`)
  }
  const { mode } = await stat(file)
  if (isLiteral && process.platform !== 'win32' && (mode & OTHERS) !== 0) {
    warnings.push(`Others on this machine can read ${file}, which holds the token: chmod 600 ${quote(file)}`)
  }
  if (!isStrictJson(next.toString('utf8'))) {
    warnings.push(
      `${file} has comments or trailing commas: they are kept, but clients and the listener read plain JSON only. Remove them.`,
    )
  }
  return warnings
}

function isStrictJson(text: string): boolean {
  try {
    JSON.parse(text.replace(/^\ufeff/, ''))
    return true
  } catch {
    return false
  }
}
