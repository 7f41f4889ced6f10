import type { Rule, Tree, Violation } from './tree.ts'

const README_LINES_MAX = 20
const README_FOLDERS = ['server', 'scripts', 'plugin', 'supabase', 'test']
const VERSIONED = [
  'package.json',
  'package-lock.json',
  '.claude-plugin/plugin.json',
  '.claude-plugin/marketplace.json',
  '.codex-plugin/plugin.json',
  '.agents/plugins/marketplace.json',
]
/** These may leave the version of their plugins to the plugins. */
const MAY_BE_SILENT = /marketplace\.json$/

export const nameRules: Rule[] = [
  {
    name: 'each file in http/routes and mcp/tools has a namesake in domain/',
    check: (tree) =>
      [...tree.keys()].flatMap((file) => {
        const concept = /^server\/(?:http\/routes|mcp\/tools)\/([^/]+?)(?:\.tsx?$|\/)/.exec(file)?.[1]
        return concept === undefined || isConcept(tree, concept) ? [] : [missing(file, `server/domain/${concept}.ts`)]
      }),
  },
  {
    name: 'each migration is named <timestamp>_<concept>.sql after a concept in domain/ or a folder of server/',
    check: (tree) =>
      [...tree.keys()]
        .filter((file) => file.startsWith('supabase/migrations/'))
        .flatMap((f) => checkMigration(tree, f)),
  },
  { name: 'all manifests carry the same version', check: checkVersions },
  {
    name: `a README of a folder says its rule in ${README_LINES_MAX} lines`,
    check: (tree) =>
      README_FOLDERS.filter((folder) => hasFolder(tree, folder)).flatMap((folder) => checkReadme(tree, folder)),
  },
]

function checkMigration(tree: Tree, file: string): Violation[] {
  const concept = /^supabase\/migrations\/\d{14}_([a-z0-9_]+)\.sql$/.exec(file)?.[1]
  if (concept === undefined) return [{ file, message: 'is not named <14 digits>_<concept>.sql' }]
  const name = concept.replaceAll('_', '-')
  return isConcept(tree, name) || hasFolder(tree, `server/${name}`) ? [] : [missing(file, `server/domain/${name}.ts`)]
}

function checkVersions(tree: Tree): Violation[] {
  const expected = listVersions(tree.get('package.json') ?? '{}')[0]
  return VERSIONED.flatMap((file) => {
    const text = tree.get(file)
    if (text === undefined) return []
    const versions = listVersions(text)
    if (versions.length === 0 && !MAY_BE_SILENT.test(file)) return [{ file, message: 'has no version' }]
    const wrong = versions.filter((version) => version !== expected)
    return wrong.map((version) => ({ file, message: `has version ${version}, package.json has ${expected}` }))
  })
}

interface Manifest {
  version?: string
  metadata?: { version?: string }
  plugins?: { version?: string }[]
  packages?: { ''?: { version?: string } }
}

/** Where npm, Claude Code and Codex keep the version of the product; never that of a dependency. */
function listVersions(text: string): string[] {
  const manifest = JSON.parse(text) as Manifest
  const plugins = manifest.plugins ?? []
  const places = [manifest, manifest.metadata, manifest.packages?.[''], ...plugins]
  return places.flatMap((place) => (place?.version === undefined ? [] : [place.version]))
}

function checkReadme(tree: Tree, folder: string): Violation[] {
  const file = `${folder}/README.md`
  const text = tree.get(file)
  if (text === undefined) return [{ file, message: 'is missing' }]
  const lines = text.trimEnd().split('\n').length
  return lines <= README_LINES_MAX ? [] : [{ file, message: `has ${lines} lines` }]
}

function isConcept(tree: Tree, concept: string): boolean {
  return tree.has(`server/domain/${concept}.ts`) || hasFolder(tree, `server/domain/${concept}`)
}

function hasFolder(tree: Tree, folder: string): boolean {
  return [...tree.keys()].some((file) => file.startsWith(`${folder}/`))
}

function missing(file: string, namesake: string): Violation {
  return { file, message: `has no ${namesake}` }
}
