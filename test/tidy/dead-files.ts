import { posix } from 'node:path'
import { listEdges, resolveImport, scanJsdocImports } from './imports.ts'
import { tokenizeCode } from './lexer.ts'
import { isCode, isJsx, isProduct, isTest, type Rule, type Tree, type Violation } from './tree.ts'

/** What names a program that somebody starts: npm, CI, and what Claude Code and Codex read of a plugin. */
const MANIFESTS = [
  /^package\.json$/,
  /^\.ci\//,
  /^\.github\/workflows\//,
  /^\.(?:claude-plugin|codex-plugin|agents)\/.*\.json$/,
  /^plugin\/[^/]+\.json$/,
  /^(?:skills|commands)\/.*\.md$/,
]
/** These are only run by what they name: a path there that leads nowhere is a mistake, in prose it may be an example. */
const EXACT_MANIFESTS = /^(?:package\.json|\.ci\/.*)$/

export const deadFileRules: Rule[] = [
  {
    name: 'every file that users run can be reached from a manifest, without help from the tests',
    check: (tree) => {
      const reached = reach(tree, listEntries(tree), (file) => !file.startsWith('test/'))
      return dead([...tree.keys()].filter(isProduct), reached)
    },
  },
  {
    name: 'every other code file can be reached from a manifest or a test',
    check: (tree) => {
      const tests = [...tree.keys()].filter(isTest)
      const reached = reach(tree, [...listEntries(tree), ...tests], () => true)
      return dead(
        [...tree.keys()].filter((file) => isCode(file) && !isProduct(file)),
        reached,
      )
    },
  },
  {
    name: 'package.json and .ci name only files that exist',
    check: (tree) =>
      [...tree.keys()]
        .filter((file) => EXACT_MANIFESTS.test(file))
        .flatMap((file) => listPaths(tree.get(file) ?? '').map((path) => ({ file, path })))
        .filter(({ path }) => /^(?:server|scripts|plugin|test)\//.test(path) && !tree.has(path))
        .map(({ file, path }) => ({ file, message: `names ${path}, which does not exist` })),
  },
]

function dead(files: string[], reached: Set<string>): Violation[] {
  const message = 'is reached by no import, by no path written in one piece, and from no manifest'
  return files.filter((file) => !reached.has(file)).map((file) => ({ file, message }))
}

function listEntries(tree: Tree): string[] {
  const manifests = [...tree.keys()].filter((file) => MANIFESTS.some((pattern) => pattern.test(file)))
  return manifests.flatMap((file) => listPaths(tree.get(file) ?? '')).filter((path) => tree.has(path))
}

/** Paths of code in the text of a manifest; `dist/x.js` is built from `x.ts`. */
function listPaths(text: string): string[] {
  const paths = Array.from(text.matchAll(/[\w@.-]+(?:\/[\w@.-]+)*\.(?:tsx?|mjs|cjs|js)\b/g), (match) => match[0])
  return paths.map((path) => path.replace(/^\.\//, '').replace(/^dist\/(.*)\.js$/, '$1.ts'))
}

function reach(tree: Tree, entries: string[], isFollowed: (file: string) => boolean): Set<string> {
  const reached = new Set<string>()
  const queue = [...entries]
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (reached.has(file) || !isFollowed(file)) continue
    reached.add(file)
    if (isCode(file)) queue.push(...listReferences(tree, file))
  }
  return reached
}

/** Files that a module imports, whose types it borrows in JSDoc, or whose path it holds as a string (to start them). */
function listReferences(tree: Tree, file: string): string[] {
  const source = tree.get(file) ?? ''
  const imported = listEdges(tree, file).map(({ to }) => to)
  const borrowed = scanJsdocImports(source, isJsx(file)).map((specifier) => resolveImport(tree, file, specifier))
  const strings = tokenizeCode(source, isJsx(file)).filter(({ kind }) => kind === 'string' || kind === 'template')
  const named = strings.flatMap(({ text }) =>
    listPaths(text).flatMap((path) => [path, posix.join(posix.dirname(file), path)]),
  )
  return [...imported, ...borrowed, ...named].filter((path): path is string => path !== null && tree.has(path))
}
