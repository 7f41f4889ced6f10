import { realpath } from 'node:fs/promises'
import { join } from 'node:path'
import type { Environment } from '../env.ts'
import type { Connections } from './connections.ts'
import { type Planned, planIgnore } from './edits.ts'
import { CommandError } from './errors.ts'
import { checkOwner, isLink, isWithin, resolveFile } from './files.ts'
import { askGit, findOwnRepository, type GitFacts } from './git.ts'

const RULES_FILE = join('.claude', 'settings.local.json')

/**
 * The file of a project behind a path. Throws where a symlink leads out of the project, or to a file of another user: a
 * repository that was cloned must not make us write into files that count for everything the user does, or that others read.
 */
export async function resolveInProject(folder: string, path: string, environment: Environment): Promise<string> {
  const file = await resolveFile(join(folder, path))
  const project = await realpath(folder)
  if (!isWithin(file, project) && !(await isInRepositoryOf(project, file, environment))) {
    throw new CommandError(
      'outside',
      `${join(folder, path)} leads out of this project, to ${file}. Nothing was written.`,
      { hint: 'Put a file in the place of the symlink, then try again.' },
    )
  }
  await checkOwner(file)
  return file
}

async function isInRepositoryOf(project: string, file: string, { lookup }: Environment): Promise<boolean> {
  const repository = await findOwnRepository(project)
  if (repository === null || !isWithin(file, repository)) return false
  // A home that is kept in a repository as a whole is not one project.
  const home = lookup('HOME')
  return home === undefined || !isWithin(join(await realpath(home).catch(() => home), 'x'), repository)
}

/** Claude Code's settings of this user in a project. Throws as resolveInProject, and where git would give our rules to others. */
export async function resolveSettings(folder: string, environment: Environment): Promise<string> {
  const file = await resolveInProject(folder, RULES_FILE, environment)
  const { isTracked, isIgnored } = await askGit(file, environment.forChild())
  const isLinked = file !== join(await realpath(folder), RULES_FILE)
  if (isTracked !== true && !(isLinked && isIgnored === false)) return file
  const problem = isTracked === true ? 'git tracks' : 'git does not ignore'
  throw new CommandError(
    'rules_in_git',
    `The next commit could give the rules of --allow to everyone: ${problem} ${file}. Nothing was written.`,
    { hint: `Leave --allow out, or make ${join(folder, RULES_FILE)} a file of its own that git does not track.` },
  )
}

export interface Secret {
  folder: string
  /** The real path of the file that is going to hold the token. */
  file: string
  git: GitFacts
}

/** What keeps a token out of git: null where nothing is to be done. Throws where the next commit could take it along. */
export async function planIgnoring(connections: Connections, { folder, file, git }: Secret): Promise<Planned | null> {
  if (!git.isRepository) return null
  if (git.isTracked === true)
    throw inGit(`git tracks ${file}`, 'or take it out of git (git rm --cached, and commit that)')
  const path = join(await realpath(folder), '.gitignore')
  const isOurs = connections.find(folder)?.edits.some((edit) => edit.kind === 'ignore' && edit.file === path) === true
  if (git.isIgnored === true && !isOurs) return null
  // Our line is the last one in the nearest .gitignore, so it decides, but for this one file only.
  if (file !== join(await realpath(folder), '.mcp.json') && git.isIgnored !== true) {
    if (git.isIgnored === null) return null
    throw inGit(`git does not ignore ${file}, to which .mcp.json leads`, 'or name that file in .gitignore')
  }
  // Through a symlink we would write into something else, and git reads none.
  if (await isLink(path)) throw inGit(`${path} is a symlink, which git does not read`, 'or make .gitignore a file')
  const before = await connections.readWithout(folder, path)
  const isListed = before !== null && /^\/?\.mcp\.json\s*$/m.test(before.toString('utf8'))
  return isListed && git.isIgnored === null ? null : planIgnore(path, before)
}

function inGit(problem: string, otherwise: string): CommandError {
  return new CommandError('token_in_git', `The next commit could hold the token: ${problem}. Nothing was written.`, {
    hint: `Say --env NAME, so that .mcp.json names a variable instead, ${otherwise}.`,
  })
}
