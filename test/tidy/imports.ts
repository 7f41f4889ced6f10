import { posix } from 'node:path'
import { type Token, tokenize, tokenizeCode } from './lexer.ts'
import { isJsx, type Tree } from './tree.ts'

export interface Import {
  /** Null where it is computed at run time. */
  specifier: string | null
  kind: 'static' | 'dynamic' | 'require'
  /** Erased by the compiler: `import type` and `export type`, not `import { type X }`, which still loads the module. */
  isTypeOnly: boolean
  line: number
}

/** An import together with the file that holds it and the file of the tree that it means (null: a package, or computed). */
export interface Edge extends Import {
  from: string
  to: string | null
}

/** Every import of a module: static, `export from`, `import()` and `require()`; none in strings, comments and templates. */
export function scanImports(source: string, isJsx = false): Import[] {
  const tokens = tokenizeCode(source, isJsx)
  return tokens.flatMap((token, index) => {
    if (token.kind !== 'word' || isMember(tokens, index)) return []
    const found = READERS.get(token.text)?.(tokens, index)
    return found ? [{ ...found, line: token.line }] : []
  })
}

/** Specifiers in JSDoc: `@import { X } from './x.d.ts'` and `import('./x.d.ts')`; types only, erased. */
export function scanJsdocImports(source: string, isJsx = false): string[] {
  const comments = tokenize(source, isJsx).filter((token) => token.kind === 'comment')
  return comments.flatMap(({ text }) => [
    ...Array.from(text.matchAll(/@import\s[^'"]*?from\s*['"]([^'"]+)['"]/g), (match) => match[1] ?? ''),
    ...Array.from(text.matchAll(/\bimport\(\s*['"]([^'"]+)['"]\s*\)/g), (match) => match[1] ?? ''),
  ])
}

/** The file of the tree that a relative specifier means, or null. */
export function resolveImport(tree: Tree, from: string, specifier: string): string | null {
  if (!specifier.startsWith('./') && !specifier.startsWith('../')) return null
  const path = posix.join(posix.dirname(from), specifier)
  const base = path.replace(/\.m?js$/, '')
  const candidates = [
    path,
    `${base}.ts`,
    `${base}.tsx`,
    `${path}.ts`,
    `${path}.mjs`,
    `${path}.d.ts`,
    `${path}/index.ts`,
  ]
  return candidates.find((candidate) => tree.has(candidate)) ?? null
}

/** Every rule asks for the same edges, and reading a file costs a hundred times what the rule does with them. */
const edges = new WeakMap<Tree, Map<string, Edge[]>>()

export function listEdges(tree: Tree, from: string): Edge[] {
  const known = edges.get(tree) ?? new Map<string, Edge[]>()
  edges.set(tree, known)
  const listed = known.get(from) ?? readEdges(tree, from)
  known.set(from, listed)
  return listed
}

function readEdges(tree: Tree, from: string): Edge[] {
  return scanImports(tree.get(from) ?? '', isJsx(from)).map((found) => ({
    ...found,
    from,
    to: found.specifier === null ? null : resolveImport(tree, from, found.specifier),
  }))
}

type Found = Omit<Import, 'line'> | null

const READERS = new Map<string, (tokens: Token[], index: number) => Found>([
  ['import', readImport],
  ['export', readExport],
  ['require', (tokens, index) => (tokens[index + 1]?.text === '(' ? readCall(tokens, index, 'require') : null)],
])

function readImport(tokens: Token[], index: number): Found {
  const next = tokens[index + 1]
  if (next?.text === '(') return readCall(tokens, index, 'dynamic')
  if (next?.kind === 'string') return { specifier: unquote(next), kind: 'static', isTypeOnly: false }
  const isTypeOnly = next?.text === 'type' && !['from', ','].includes(tokens[index + 2]?.text ?? '')
  return readFrom(tokens, index + 1, isTypeOnly)
}

function readExport(tokens: Token[], index: number): Found {
  const isTypeOnly = tokens[index + 1]?.text === 'type'
  const start = isTypeOnly ? index + 2 : index + 1
  return ['{', '*'].includes(tokens[start]?.text ?? '') ? readFrom(tokens, start, isTypeOnly) : null
}

function readCall(tokens: Token[], index: number, kind: 'dynamic' | 'require'): Found {
  const argument = tokens[index + 2]
  const isLiteral = argument?.kind === 'string' || (argument?.kind === 'template' && argument.text.endsWith('`'))
  const isWhole = [')', ','].includes(tokens[index + 3]?.text ?? '')
  return {
    specifier: argument && isLiteral && isWhole ? unquote(argument) : null,
    kind,
    isTypeOnly: tokens[index - 1]?.text === 'typeof',
  }
}

/** Reads the clause of names up to `from '…'`; anything that cannot stand in one means that this is no import. */
function readFrom(tokens: Token[], start: number, isTypeOnly: boolean): Found {
  let isInBraces = false
  for (let index = start; index < tokens.length; index++) {
    const token = tokens[index]
    const next = tokens[index + 1]
    if (!token || (token.kind === 'punctuation' && !'{},*'.includes(token.text))) return null
    if (token.text === 'from' && !isInBraces && next?.kind === 'string') {
      return { specifier: unquote(next), kind: 'static', isTypeOnly }
    }
    if (token.text === '}' && next?.text !== 'from') return null
    if (token.text === '{') isInBraces = true
    if (token.text === '}') isInBraces = false
  }
  return null
}

function isMember(tokens: Token[], index: number): boolean {
  return ['.', '?.'].includes(tokens[index - 1]?.text ?? '')
}

function unquote(token: Token): string {
  return token.text.slice(1, -1)
}
