import { type Edge, listEdges } from './imports.ts'
import { isCode, type Rule, type Tree, type Violation } from './tree.ts'

/**
 * What each room of server/ may import, from the bottom up. Config is passed in, so only its types are free to all; in the same
 * way the rooms of the floor may name each other's types, and are handed the values.
 */
const ERRORS = ['errors']
const FLOOR = ['db', 'wakes', 'metrics', 'blobs']
const DOMAIN = ['domain', ...FLOOR, ...ERRORS]
const ADAPTERS = ['http', 'mcp', 'realtime', 'dashboard']
const TOP = [...ADAPTERS, ...DOMAIN, 'config']
const ROOMS: Record<string, readonly string[]> = {
  errors: [],
  config: ERRORS,
  ...Object.fromEntries(FLOOR.map((room) => [room, [room, ...ERRORS]])),
  domain: DOMAIN,
  ...Object.fromEntries(ADAPTERS.map((room) => [room, [room, ...DOMAIN]])),
  app: TOP,
  admin: TOP,
  main: [...TOP, 'app'],
}

/** Domain knows no protocol: neither these packages nor Node's own network modules. */
const PROTOCOLS = /^(?:fastify|@fastify\/.*|ws|@modelcontextprotocol\/.*|(?:node:)?(?:https?|http2|net|tls))$/
const MCP_SDK = /^@modelcontextprotocol\//
const MCP_SDK_FILES_MAX = 3

export const layerRules: Rule[] = [
  {
    name: 'server/ imports downwards only: main, app, adapters, domain, db and wakes and metrics and blobs, errors',
    check: (tree) => serverEdges(tree).flatMap(checkRoom),
  },
  {
    name: 'server/, plugin/ and scripts/ import each other only where the house allows it',
    check: (tree) => edgesOf(tree, isOutsideDev).flatMap(checkTopLevel),
  },
  {
    name: 'scripts/, scripts/dev apart, imports nothing but node: and itself',
    check: (tree) => edgesOf(tree, (file) => file.startsWith('scripts/') && isOutsideDev(file)).flatMap(checkPurity),
  },
  { name: 'no import goes in a circle', check: checkCycles },
  {
    name: 'domain/ knows no HTTP, MCP or WebSocket',
    check: (tree) =>
      serverEdges(tree)
        .filter(({ from, specifier }) => roomOf(from) === 'domain' && PROTOCOLS.test(specifier ?? ''))
        .map((edge) => violation(edge, `imports ${edge.specifier}`)),
  },
  { name: 'the MCP SDK is imported in three files of server/mcp at most', check: checkSdk },
]

function checkRoom(edge: Edge): Violation[] {
  const from = roomOf(edge.from)
  const to = edge.to?.startsWith('server/') ? roomOf(edge.to) : null
  const allowed = ROOMS[from]
  if (allowed === undefined) return [violation(edge, `server/${from} has no place in the layers`)]
  if (to === null || allowed.includes(to)) return []
  if (edge.isTypeOnly && (to === 'config' || (FLOOR.includes(from) && FLOOR.includes(to)))) return []
  return [violation(edge, `${from} must not import ${to} (${edge.to})`)]
}

function checkTopLevel(edge: Edge): Violation[] {
  const from = topOf(edge.from)
  if (edge.to === null) return []
  const to = edge.to.startsWith('scripts/dev/')
    ? 'scripts/dev'
    : edge.to.startsWith('scripts/lib/')
      ? 'scripts/lib'
      : topOf(edge.to)
  const allowed = { server: ['server'], plugin: ['plugin', 'scripts/lib'], scripts: ['scripts', 'scripts/lib'] }[from]
  return allowed === undefined || allowed.includes(to) ? [] : [violation(edge, `${from}/ must not import ${edge.to}`)]
}

function checkPurity(edge: Edge): Violation[] {
  if (edge.isTypeOnly) return [violation(edge, 'types come through JSDoc @import')]
  if (edge.kind === 'require' && !edge.from.endsWith('.cjs')) return [violation(edge, 'uses require')]
  if (edge.specifier === null) return [violation(edge, 'imports a computed module, which nobody can check')]
  if (edge.specifier === 'node:module') return [violation(edge, 'imports node:module, which loads anything')]
  if (edge.specifier.startsWith('node:') || (edge.to?.startsWith('scripts/') && isOutsideDev(edge.to))) return []
  return [violation(edge, `imports ${edge.specifier}`)]
}

function checkSdk(tree: Tree): Violation[] {
  const edges = serverEdges(tree).filter(({ specifier }) => MCP_SDK.test(specifier ?? ''))
  const files = [...new Set(edges.map(({ from }) => from))]
  const strays = edges
    .filter(({ from }) => roomOf(from) !== 'mcp')
    .map((edge) => violation(edge, `imports ${edge.specifier}`))
  if (files.length <= MCP_SDK_FILES_MAX) return strays
  return [...strays, { file: files.at(-1) ?? '', message: `the MCP SDK is imported in ${files.join(', ')}` }]
}

/** Depth-first walk; each circle is named once, by the file that closes it. Types count: two files that need each other are one. */
function checkCycles(tree: Tree): Violation[] {
  const violations: Violation[] = []
  const done = new Set<string>()
  const visit = (file: string, path: string[]): void => {
    if (path.includes(file)) {
      const circle = [...path.slice(path.indexOf(file)), file].join(' → ')
      violations.push({ file: path.at(-1) ?? file, message: circle })
    } else if (!done.has(file)) {
      for (const { to } of listEdges(tree, file)) if (to !== null) visit(to, [...path, file])
      done.add(file)
    }
  }
  for (const file of tree.keys()) if (isCode(file)) visit(file, [])
  return violations
}

function edgesOf(tree: Tree, isIncluded: (file: string) => boolean): Edge[] {
  return [...tree.keys()].filter((file) => isCode(file) && isIncluded(file)).flatMap((file) => listEdges(tree, file))
}

function serverEdges(tree: Tree): Edge[] {
  return edgesOf(tree, (file) => file.startsWith('server/'))
}

function isOutsideDev(file: string): boolean {
  return !file.startsWith('scripts/dev/')
}

function topOf(file: string): string {
  return file.split('/')[0] ?? file
}

/** The folder of server/ that a file lies in, or its own name without suffix. */
function roomOf(file: string): string {
  return (file.split('/')[1] ?? file).replace(/\.\w+$/, '')
}

function violation({ from, line }: Edge, message: string): Violation {
  return { file: from, message: `line ${line}: ${message}` }
}
