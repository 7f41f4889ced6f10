import { readdir, readFile } from 'node:fs/promises'
import { join, posix } from 'node:path'

/** Text of every file by its path from the root, with slashes. A rule reads nothing else, so a test can plant a tree. */
export type Tree = ReadonlyMap<string, string>

export interface Violation {
  file: string
  message: string
}

/** A rule of the house: its name is a sentence that is true of a tidy tree. */
export interface Rule {
  name: string
  check: (tree: Tree) => Violation[]
}

const FILE_BYTES_MAX = 2_000_000

/** Reads the text files below a folder, without `.git` and what its `.gitignore` names (names and `*.suffix` only). */
export async function readTree(root: string): Promise<Tree> {
  const ignore = await readFile(join(root, '.gitignore'), 'utf8')
  const patterns = ['.git', ...ignore.split('\n').map((line) => line.trim().replace(/^\/|\/$/g, ''))]
  const tree = new Map<string, string>()
  await readFolder(root, '', (name) => patterns.some((pattern) => matchesName(pattern, name)), tree)
  return tree
}

async function readFolder(
  root: string,
  folder: string,
  isIgnored: (name: string) => boolean,
  tree: Map<string, string>,
): Promise<void> {
  for (const entry of await readdir(join(root, folder), { withFileTypes: true })) {
    if (isIgnored(entry.name)) continue
    const path = posix.join(folder, entry.name)
    if (entry.isDirectory()) await readFolder(root, path, isIgnored, tree)
    if (!entry.isFile()) continue
    const bytes = await readFile(join(root, path))
    if (bytes.length <= FILE_BYTES_MAX && !bytes.includes(0)) tree.set(path, bytes.toString('utf8'))
  }
}

function matchesName(pattern: string, name: string): boolean {
  return pattern.startsWith('*') ? pattern.length > 1 && name.endsWith(pattern.slice(1)) : pattern === name
}

export function isCode(path: string): boolean {
  return /\.(?:ts|tsx|mts|mjs|cjs|js)$/.test(path)
}

/** Files whose elements are read as such: in others `<T>(x)` is a type parameter. */
export function isJsx(path: string): boolean {
  return /\.[jt]sx$/.test(path)
}

/** Test files of a tree, by the names that the runner looks for. */
export function isTest(path: string): boolean {
  return /^test\/.*\.(?:test|kill|client|browser|conformance)\.ts$/.test(path)
}

/** Code that users run, as against tests and the tools of maintainers. */
export function isProduct(path: string): boolean {
  return isCode(path) && /^(?:server|scripts|plugin)\//.test(path) && !path.startsWith('scripts/dev/')
}
