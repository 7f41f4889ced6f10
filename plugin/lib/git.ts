import { execFile } from 'node:child_process'
import { lstat } from 'node:fs/promises'
import { dirname, join } from 'node:path'

const GIT_MS_MAX = 10_000

export interface GitFacts {
  isRepository: boolean
  /** git would not take the file into a commit; null: git could not be asked. */
  isIgnored: boolean | null
  isTracked: boolean | null
}

/** What git thinks of a file in a folder. Looks for the repository itself, so that nothing is started outside of one. */
export async function askGit(folder: string, name: string): Promise<GitFacts> {
  if (!(await isInRepository(folder))) return { isRepository: false, isIgnored: null, isTracked: null }
  const [ignored, tracked] = await Promise.all([
    runGit(folder, ['check-ignore', '-q', '--no-index', '--', name]),
    runGit(folder, ['ls-files', '--error-unmatch', '--', name]),
  ])
  return { isRepository: true, isIgnored: toAnswer(ignored), isTracked: toAnswer(tracked) }
}

async function isInRepository(folder: string): Promise<boolean> {
  for (let current = folder; ; current = dirname(current)) {
    // `.git` is a folder in a clone and a file in a worktree or submodule.
    if (await lstat(join(current, '.git')).then(Boolean, () => false)) return true
    if (dirname(current) === current) return false
  }
}

/** 0 is yes and 1 is no; anything else (no git, another user's repository) is no answer. */
function toAnswer(code: number): boolean | null {
  return code === 0 ? true : code === 1 ? false : null
}

function runGit(folder: string, args: string[]): Promise<number> {
  return new Promise((resolve) => {
    const child = execFile('git', ['-C', folder, ...args], { timeout: GIT_MS_MAX }, (error) => {
      resolve(error === null ? 0 : (child.exitCode ?? -1))
    })
  })
}
