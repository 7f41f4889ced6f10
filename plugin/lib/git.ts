import { execFile } from 'node:child_process'
import { lstat } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { checkPlainFile, isMine } from './files.ts'
import { findOnPath } from './find-program.ts'

const GIT_MS_MAX = 10_000

/** A repository's own configuration can name programs that git starts: whoever clones one has not agreed to run them. */
const SAFE = ['core.fsmonitor=false', 'core.hooksPath=/dev/null', 'safe.bareRepository=explicit'].flatMap((setting) => [
  '-c',
  setting,
])
const SAFE_VARIABLES = {
  GIT_OPTIONAL_LOCKS: '0',
  // An object that is missing would be fetched from wherever the repository says.
  GIT_NO_LAZY_FETCH: '1',
  GIT_ALLOW_PROTOCOL: 'none',
  GIT_TERMINAL_PROMPT: '0',
}
/** They would let git answer for another repository than the one that the file is in. */
const ELSEWHERE = ['GIT_DIR', 'GIT_WORK_TREE', 'GIT_COMMON_DIR', 'GIT_INDEX_FILE', 'GIT_OBJECT_DIRECTORY']

/** What git reads of a repository before it answers, beside the lines of .gitignore. */
const GITS_OWN = ['HEAD', 'config', 'index', 'info/exclude']

/** As for a file that is in no repository. */
export const NOT_ASKED: GitFacts = { isRepository: false, isIgnored: null, isTracked: null }

export interface GitFacts {
  isRepository: boolean
  /** git would not take the file into a commit; null: git could not be asked. */
  isIgnored: boolean | null
  isTracked: boolean | null
}

/**
 * What git thinks of a file, by its real path. Looks for the repository itself and asks from its root: nothing is started
 * outside of one, and a bare repository that is hidden in a folder below does not answer in its place. Throws where git would
 * wait for a file, or read one without an end.
 */
export async function askGit(file: string, environment: NodeJS.ProcessEnv): Promise<GitFacts> {
  const root = await findRepository(dirname(file))
  if (root === null) return NOT_ASKED
  await checkWhatGitReads(root, dirname(file))
  const env = { ...environment, ...SAFE_VARIABLES }
  for (const name of ELSEWHERE) delete (env as NodeJS.ProcessEnv)[name]
  // No name is a pattern: the one command is told so, the other one reads no more than `:(…)` at the beginning.
  const name = `./${relative(root, file)}`
  const program = await findOnPath('git', env)
  if (program === null) return { isRepository: true, isIgnored: null, isTracked: null }
  const [ignored, tracked] = await Promise.all([
    runGit(program, root, ['check-ignore', '-q', '--no-index', '--', name], env),
    runGit(program, root, ['--literal-pathspecs', 'ls-files', '--error-unmatch', '--', name], env),
  ])
  return { isRepository: true, isIgnored: toAnswer(ignored), isTracked: toAnswer(tracked) }
}

async function checkWhatGitReads(root: string, folder: string): Promise<void> {
  for (const name of GITS_OWN) await checkPlainFile(join(root, '.git', name), Number.POSITIVE_INFINITY)
  for (let current = folder; ; current = dirname(current)) {
    await checkPlainFile(join(current, '.gitignore'))
    if (current === root) return
  }
}

/** The nearest folder, from this one upwards, that holds a repository; null where none does. */
export async function findRepository(folder: string): Promise<string | null> {
  for (let current = folder; ; current = dirname(current)) {
    // `.git` is a folder in a clone and a file in a worktree or submodule.
    if (await lstat(join(current, '.git')).then(Boolean, () => false)) return current
    if (dirname(current) === current) return null
  }
}

/** As findRepository, and null where the nearest one is another user's: whoever made it must not say where a project ends. */
export async function findOwnRepository(folder: string): Promise<string | null> {
  const root = await findRepository(folder)
  return root !== null && isMine(await lstat(join(root, '.git'))) ? root : null
}

/** 0 is yes and 1 is no; anything else (no git, another user's repository) is no answer. */
function toAnswer(code: number): boolean | null {
  return code === 0 ? true : code === 1 ? false : null
}

function runGit(program: string, folder: string, args: string[], env: NodeJS.ProcessEnv): Promise<number> {
  return new Promise((resolve) => {
    const child = execFile(program, ['-C', folder, ...SAFE, ...args], { env, timeout: GIT_MS_MAX }, (error) => {
      resolve(error === null ? 0 : (child.exitCode ?? -1))
    })
  })
}
