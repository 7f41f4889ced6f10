import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import type { FastifyInstance } from 'fastify'
import { PatchcordError, StartError } from '../errors.ts'

/** What each asset is made of, one after the other. */
const SOURCES = {
  'app.css': [
    'public/base.css',
    'public/layout.css',
    'public/forms.css',
    'public/components.css',
    'public/table.css',
    'public/messages.css',
    'public/charts.css',
    'public/manage.css',
  ],
  'copy.js': ['public/copy.js'],
  'live.js': ['public/live.js'],
  'secret.js': ['public/secret.js'],
  'theme.js': ['public/theme.js'],
  'login.js': ['public/login.js'],
  'icon.svg': ['public/icon.svg'],
} as const
const SUPABASE = '@supabase/supabase-js/dist/umd/supabase.js'

export type AssetName = keyof typeof SOURCES | 'supabase.js'

interface Asset {
  name: string
  type: string
  body: Buffer
  zipped: Buffer
}

const TYPES: Record<string, string> = {
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}
const HASH_CHARACTERS = 10
/** For what has the hash of its content in its name. */
export const FOR_EVER = 'public, max-age=31536000, immutable'

const loaded = new Map<AssetName, Asset>()

/** The address of an asset: its name holds the hash of its content, so that it may be kept for ever. */
export function assetPath(name: AssetName): string {
  return `/assets/${loadAsset(name).name}`
}

function loadAsset(name: AssetName): Asset {
  const known = loaded.get(name)
  if (known) return known
  const body = Buffer.concat(listFiles(name).map((path) => readFileSync(path)))
  const hash = createHash('sha256').update(body).digest('hex').slice(0, HASH_CHARACTERS)
  const ending = name.split('.').at(-1) ?? ''
  const asset = {
    name: `${name.slice(0, -ending.length - 1)}-${hash}.${ending}`,
    type: TYPES[ending] ?? 'application/octet-stream',
    body,
    zipped: gzipSync(body, { level: 9 }),
  }
  loaded.set(name, asset)
  return asset
}

function listFiles(name: AssetName): string[] {
  if (name === 'supabase.js') return [createRequire(import.meta.url).resolve(SUPABASE)]
  const folder = sourceFolder()
  return SOURCES[name].map((path) => join(folder, path))
}

/** The folder `server/dashboard` of the sources, seen from them and from the build alike. */
function sourceFolder(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); folder !== dirname(folder); folder = dirname(folder)) {
    const found = join(folder, 'server', 'dashboard')
    if (existsSync(join(found, 'public', 'base.css'))) return found
  }
  throw new StartError('The folder server/dashboard/public is missing: this installation of Patchcord is incomplete.')
}

/** Serves what was loaded at the start, by exact name: no path of a file system comes from a request. */
export function serveAssets(app: FastifyInstance): void {
  const names: AssetName[] = [...(Object.keys(SOURCES) as AssetName[]), 'supabase.js']
  const assets = new Map(names.map((name) => [loadAsset(name).name, loadAsset(name)]))
  app.get<{ Params: { file: string } }>('/assets/:file', { config: { isAsset: true } }, async (request, reply) => {
    const asset = assets.get(request.params.file)
    if (!asset) throw new PatchcordError('not_found', 'There is no such file.')
    const isZipped = /\bgzip\b/.test(String(request.headers['accept-encoding'] ?? ''))
    if (isZipped) reply.header('content-encoding', 'gzip')
    reply.header('vary', 'accept-encoding')
    return reply.type(asset.type).send(isZipped ? asset.zipped : asset.body)
  })
  app.get('/favicon.ico', { config: { isAsset: true } }, async (_request, reply) =>
    reply.redirect(assetPath('icon.svg'), 302),
  )
}
