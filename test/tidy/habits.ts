import { listEdges } from './imports.ts'
import { type Token, tokenizeCode } from './lexer.ts'
import { isCode, isJsx, type Rule, type Tree, type Violation } from './tree.ts'

const ENVIRONMENT_READERS = ['server/config.ts', 'plugin/env.ts', 'scripts/lib/config.cjs']

/** What only looks like a secret is kept apart, where a reader expects it. */
const FIXTURES = /^test\/fixtures\//
/** Written so that none of them matches itself. */
const SECRETS: Record<string, RegExp> = {
  'an agent token': /(?<![\w-])pc_[\w-]{49}(?![\w-])/,
  'a JWT': /\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}/,
  'a Supabase secret key': /\bsb_secret_[\w-]{20,}/,
  'a private key': /-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----/,
}

/** Some tests are about root, or about permissions that Windows lacks: there is nothing to test elsewhere. */
const MACHINE = /^(?:platform|getuid|isRoot|isPosix|isWindows)$/
const MACHINE_EXPRESSION = /^(?:platform|getuid|isRoot|isPosix|isWindows|process|\?\.|[.!=|&()0]|'\w+')$/

interface Manifest {
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
}

export const habitRules: Rule[] = [
  {
    name: `the environment is read only in ${ENVIRONMENT_READERS.join(', ')}`,
    check: (tree) => {
      const files = [...tree.keys()].filter(
        (file) => isCode(file) && /^(?:server|plugin|scripts)\/(?!dev\/)/.test(file),
      )
      const silent = files.filter((file) => !ENVIRONMENT_READERS.includes(file))
      return silent.flatMap((file) => findTokens(tree, file, readsEnvironment, 'reads the environment'))
    },
  },
  {
    name: 'no test is skipped, singled out or left to do, but for the platform or the user it runs under',
    check: (tree) =>
      [...tree.keys()].filter(isTestCode).flatMap((file) => findTokens(tree, file, skipsTest, 'leaves tests out')),
  },
  {
    name: 'no file holds a secret or what looks like one',
    check: (tree) =>
      [...tree].flatMap(([file, text]) => {
        const kinds = Object.entries(SECRETS).filter(([, pattern]) => pattern.test(text))
        return FIXTURES.test(file) ? [] : kinds.map(([kind]) => ({ file, message: `holds ${kind}` }))
      }),
  },
  {
    name: 'every package that is imported is declared, and for server/ and plugin/ not only for development',
    check: checkPackages,
  },
]

/** Tests and what they import; fixtures may do what a test must not. */
function isTestCode(file: string): boolean {
  return isCode(file) && file.startsWith('test/') && !FIXTURES.test(file)
}

/** `process.env`, `process['env']`, `{ env } = process` and `import { env } from 'node:process'`. */
function readsEnvironment(tokens: Token[], index: number): boolean {
  const after = (offset: number) => tokens[index + offset]?.text ?? ''
  if (after(0) === 'process') {
    if (['.', '?.'].includes(after(1)) && after(2) === 'env') return true
    return /^(?:\[|\?\.)$/.test(after(1)) && [after(2), after(3)].some((text) => /^['"`]env['"`]$/.test(text))
  }
  const end = tokens.findIndex((token, position) => position > index && token.text === '}')
  if (after(0) !== 'env' || end === -1) return false
  const source = tokens.slice(end + 1, end + 3).map(({ text }) => text.replaceAll(/['"]/g, ''))
  return /^(?:=,process|from,(?:node:)?process)$/.test(source.join(','))
}

/** `.skip(`, `.only(`, `.todo(` and the options of the same names; `skip` may depend on the platform and the user. */
function skipsTest(tokens: Token[], index: number): boolean {
  const [before, word, after] = [-1, 0, 1].map((offset) => tokens[index + offset]?.text ?? '')
  if (!/^(?:skip|only|todo)$/.test(word ?? '')) return false
  if (before === '.') return after === '('
  if (!/^[{,]$/.test(before ?? '') || !/^[:,}]$/.test(after ?? '')) return false
  return word !== 'skip' || after !== ':' || !isAboutMachine(tokens.slice(index + 2))
}

/** Whether the expression that the tokens start with asks for nothing but the platform and the user. */
function isAboutMachine(tokens: Token[]): boolean {
  const end = tokens.findIndex(({ text }) => text === ',' || text === '}')
  const expression = tokens.slice(0, end).map(({ text }) => text)
  return expression.some((text) => MACHINE.test(text)) && expression.every((text) => MACHINE_EXPRESSION.test(text))
}

function findTokens(
  tree: Tree,
  file: string,
  isFound: (tokens: Token[], index: number) => boolean,
  message: string,
): Violation[] {
  const tokens = tokenizeCode(tree.get(file) ?? '', isJsx(file))
  return tokens
    .filter((_, index) => isFound(tokens, index))
    .map(({ line }) => ({ file, message: `line ${line}: ${message}` }))
}

function checkPackages(tree: Tree): Violation[] {
  const manifest = JSON.parse(tree.get('package.json') ?? '{}') as Manifest
  const shipped = [manifest.dependencies, manifest.optionalDependencies].flatMap((group) => Object.keys(group ?? {}))
  const all = [...shipped, ...Object.keys(manifest.devDependencies ?? {})]
  return [...tree.keys()].filter(isCode).flatMap((file) => {
    const declared = /^(?:server|plugin)\//.test(file) ? shipped : all
    const packages = listEdges(tree, file).flatMap(({ specifier, isTypeOnly }) =>
      specifier === null || isTypeOnly || /^(?:\.|node:)/.test(specifier) ? [] : [packageOf(specifier)],
    )
    return packages
      .filter((name) => !declared.includes(name))
      .map((name) => ({ file, message: `imports ${name}, undeclared` }))
  })
}

function packageOf(specifier: string): string {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/')
}
