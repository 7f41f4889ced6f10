type Files = Record<string, string>

const PACKAGE = {
  version: '1.0.0',
  scripts: { start: 'node dist/server/main.js', admin: 'node dist/server/admin.js', test: 'tsx test/run.ts' },
  dependencies: { fastify: '1' },
  devDependencies: { '@modelcontextprotocol/server': '1', tsx: '1' },
}

/** A small house in which every rule is kept. Each case below plants one thing in it. */
export const TIDY: Files = {
  'package.json': JSON.stringify(PACKAGE),
  'package-lock.json': '{"version":"1.0.0","packages":{"":{"version":"1.0.0"},"node_modules/x":{"version":"9.9.9"}}}',
  '.claude-plugin/plugin.json': '{"version":"1.0.0"}',
  '.claude-plugin/marketplace.json': '{"plugins":[{"name":"patchcord"}]}',
  'plugin/monitors.json': JSON.stringify({ command: `node "\${CLAUDE_PLUGIN_ROOT}/scripts/subscribe.mjs"` }),
  'plugin/README.md': 'rule',
  'server/README.md': 'rule',
  'server/main.ts': "import { buildApp } from './app.ts'\nimport './config.ts'",
  'server/admin.ts': "import './db/connect.ts'\nimport './config.ts'",
  'server/app.ts':
    "import './http/routes/agents.ts'\nimport './mcp/tools/agents.ts'\nimport './realtime/hub.ts'\nimport './dashboard/endpoint.tsx'",
  'server/config.ts': 'export type Config = typeof process.env',
  'server/errors.ts': 'export class PatchcordError {}',
  'server/db/connect.ts': "import '../errors.ts'",
  'server/wakes/bus.ts': "import '../errors.ts'\nimport type { Sql } from '../db/connect.ts'",
  'server/domain/agents.ts':
    "import type { Config } from '../config.ts'\nimport '../db/connect.ts'\nimport './tokens/index.ts'",
  'server/domain/tokens/index.ts': "import '../../wakes/bus.ts'",
  'server/http/routes/agents.ts': "import 'fastify'\nimport '../../domain/agents.ts'",
  'server/mcp/tools/agents.ts': "import '../../domain/agents.ts'",
  'server/realtime/hub.ts': "import '../wakes/bus.ts'",
  'server/dashboard/endpoint.tsx':
    "import './assets.ts'\nconst page = <p>don't import '../http/x.ts' // `process.env {name}</p>",
  'server/dashboard/assets.ts': "const sources = ['public/live.js']",
  'server/dashboard/public/live.js': '',
  'scripts/README.md': 'rule',
  'scripts/subscribe.mjs':
    "#!/usr/bin/env node\n/** @import { A } from './lib/types.d.ts' */\nimport 'node:net'\nimport './lib/config.cjs'",
  'scripts/lib/config.cjs': 'export const home = process.env.HOME',
  'scripts/lib/types.d.ts': 'export interface A {}',
  'supabase/README.md': 'rule',
  'supabase/migrations/20260101000000_agents.sql': '',
  'supabase/migrations/20260101000001_realtime.sql': '',
  'test/README.md': 'rule',
  'test/run.ts': "spawn('runner/child.ts')",
  'test/runner/child.ts': 'process.env.X',
  'test/agents.test.ts': "import './helpers/seed.ts'\nawait import(name)\ntest('x', () => {}) // .skip(",
  'test/helpers/seed.ts': '',
}

/** `expected` is the message, after the file's name; with null in place of a text the file is taken away. */
export interface Planted {
  breaks: RegExp
  plant: Record<string, string | null>
  in: string
  expected: RegExp
}

const CIRCLE = { 'server/domain/a.ts': "import './b.ts'", 'server/domain/b.ts': "import type { A } from './a.ts'" }
/** Put together here, so that this file holds none. */
const TOKEN = `pc_${'a1_-'.repeat(12)}z`
const JWT = ['eyJhbGciOiJIUzI1NiJ9', 'eyJzdWIiOiIxMjM0In0', 'c2lnbmF0dXJlLW9mLWEtand0'].join('.')

const downwards = /^server\/ imports downwards/
const pure = /^scripts\/, scripts\/dev apart/
const between = /import each other only where/
const environment = /^the environment is read only/
const skips = /^no test is skipped/
const secret = /^no file holds a secret/
const alive = /^every file that users run/
const version = /same version$/

export const PLANTED: Planted[] = [
  ...['mcp', 'realtime', 'dashboard'].map((room) => ({
    breaks: downwards,
    plant: { 'server/http/x.ts': `import '../${room}/x.ts'`, [`server/${room}/x.ts`]: '' },
    in: 'server/http/x.ts',
    expected: new RegExp(`http must not import ${room}`),
  })),
  {
    breaks: downwards,
    plant: { 'server/domain/x.ts': "import '../http/routes/agents.ts'" },
    in: 'server/domain/x.ts',
    expected: /domain must not import http/,
  },
  {
    breaks: downwards,
    plant: { 'server/db/x.ts': "\nexport type { A } from '../domain/agents.ts'" },
    in: 'server/db/x.ts',
    expected: /line 2: db must not import domain/,
  },
  {
    breaks: downwards,
    plant: { 'server/db/x.ts': "import type { A } from '../domain/agents.ts'" },
    in: 'server/db/x.ts',
    expected: /db must not import domain/,
  },
  {
    breaks: downwards,
    plant: { 'server/wakes/x.ts': "await import('../db/connect.ts')" },
    in: 'server/wakes/x.ts',
    expected: /wakes must not import db/,
  },
  {
    breaks: downwards,
    plant: { 'server/domain/x.ts': "import { type Config } from '../config.ts'" },
    in: 'server/domain/x.ts',
    expected: /domain must not import config/,
  },
  {
    breaks: downwards,
    plant: { 'server/mcp/x.ts': "import '../app.ts'" },
    in: 'server/mcp/x.ts',
    expected: /mcp must not import app/,
  },
  {
    breaks: downwards,
    plant: { 'server/utils/x.ts': "import '../errors.ts'" },
    in: 'server/utils/x.ts',
    expected: /server\/utils has no place/,
  },
  {
    breaks: downwards,
    plant: { 'server/dashboard/x.tsx': "const page = <p>don't // `</p>\nimport '../http/routes/agents.ts'" },
    in: 'server/dashboard/x.tsx',
    expected: /line 2: dashboard must not import http/,
  },
  {
    breaks: between,
    plant: { 'server/domain/x.ts': "import '../../scripts/lib/config.cjs'" },
    in: 'server/domain/x.ts',
    expected: /server\/ must not import scripts\/lib\/config.cjs/,
  },
  {
    breaks: between,
    plant: { 'server/domain/x.ts': "import '../../plugin/env.ts'", 'plugin/env.ts': '' },
    in: 'server/domain/x.ts',
    expected: /server\/ must not import plugin/,
  },
  {
    breaks: between,
    plant: { 'plugin/x.ts': "import '../server/errors.ts'" },
    in: 'plugin/x.ts',
    expected: /plugin\/ must not import server/,
  },
  {
    breaks: between,
    plant: { 'plugin/x.ts': "import '../scripts/subscribe.mjs'" },
    in: 'plugin/x.ts',
    expected: /plugin\/ must not import scripts\/subscribe/,
  },
  {
    breaks: between,
    plant: { 'plugin/x.ts': "import '../scripts/dev/demo.ts'", 'scripts/dev/demo.ts': '' },
    in: 'plugin/x.ts',
    expected: /plugin\/ must not import scripts\/dev/,
  },
  ...[
    ["import 'ws'", /imports ws/],
    ["import 'net'", /imports net/],
    ["import '../dev/demo.ts'", /scripts\/dev|dev\/demo/],
    ["import '../../server/errors.ts'", /server\/errors/],
    ["import { createRequire } from 'node:module'", /node:module/],
    ["require('node:net')", /require/],
    ['await import(name)', /computed/],
    ["require('ws')", /imports ws/, 'scripts/lib/x.cjs'],
    ['require(name)', /computed/, 'scripts/lib/x.cjs'],
  ].map(([source, expected, file = 'scripts/lib/x.mjs']) => ({
    breaks: pure,
    plant: { [file as string]: source as string, 'scripts/dev/demo.ts': '' },
    in: file as string,
    expected: expected as RegExp,
  })),
  {
    breaks: /circle$/,
    plant: CIRCLE,
    in: 'server/domain/b.ts',
    expected: /a\.ts → server\/domain\/b\.ts → server\/domain\/a\.ts/,
  },
  ...['fastify', 'ws', '@modelcontextprotocol/server', 'node:http', 'net'].map((name) => ({
    breaks: /^domain\/ knows no/,
    plant: { 'server/domain/x.ts': `import '${name}'` },
    in: 'server/domain/x.ts',
    expected: new RegExp(`imports ${name}`),
  })),
  {
    breaks: /^the MCP SDK/,
    plant: Object.fromEntries(
      [1, 2, 3, 4].map((n) => [`server/mcp/${n}.ts`, "import '@modelcontextprotocol/server/x'"]),
    ),
    in: 'server/mcp/4.ts',
    expected: /1\.ts.*4\.ts/,
  },
  {
    breaks: /^the MCP SDK/,
    plant: { 'server/http/x.ts': "import type { A } from '@modelcontextprotocol/server'" },
    in: 'server/http/x.ts',
    expected: /imports @modelcontextprotocol/,
  },
  ...['http/routes', 'mcp/tools'].map((folder) => ({
    breaks: /namesake/,
    plant: { [`server/${folder}/letters.ts`]: '' },
    in: `server/${folder}/letters.ts`,
    expected: /has no server\/domain\/letters\.ts/,
  })),
  {
    breaks: /^each migration/,
    plant: { 'supabase/migrations/20260101000002_letters.sql': '' },
    in: 'supabase/migrations/20260101000002_letters.sql',
    expected: /has no server\/domain\/letters\.ts/,
  },
  {
    breaks: /^each migration/,
    plant: { 'supabase/migrations/1_agents.sql': '' },
    in: 'supabase/migrations/1_agents.sql',
    expected: /is not named/,
  },
  {
    breaks: version,
    plant: { 'package-lock.json': '{"version":"1.0.1"}' },
    in: 'package-lock.json',
    expected: /1\.0\.1/,
  },
  {
    breaks: version,
    plant: { 'package-lock.json': '{"version":"1.0.0","packages":{"":{"version":"0.9.0"}}}' },
    in: 'package-lock.json',
    expected: /0\.9\.0/,
  },
  {
    breaks: version,
    plant: { '.claude-plugin/plugin.json': '{}' },
    in: '.claude-plugin/plugin.json',
    expected: /no version/,
  },
  {
    breaks: version,
    plant: { '.claude-plugin/marketplace.json': '{"plugins":[{"version":"2.0.0"}]}' },
    in: '.claude-plugin/marketplace.json',
    expected: /2\.0\.0/,
  },
  {
    breaks: version,
    plant: { '.codex-plugin/plugin.json': '{"version":"2.0.0"}' },
    in: '.codex-plugin/plugin.json',
    expected: /2/,
  },
  { breaks: /^a README/, plant: { 'test/README.md': 'x\n'.repeat(21) }, in: 'test/README.md', expected: /21 lines/ },
  { breaks: /^a README/, plant: { 'server/README.md': null }, in: 'server/README.md', expected: /missing/ },
  { breaks: alive, plant: { 'server/domain/x.ts': '' }, in: 'server/domain/x.ts', expected: /reached by no import/ },
  {
    breaks: alive,
    plant: { 'server/dashboard/public/x.js': '' },
    in: 'server/dashboard/public/x.js',
    expected: /reached by no import/,
  },
  { breaks: alive, plant: { 'plugin/monitors.json': '{}' }, in: 'scripts/subscribe.mjs', expected: /from no manifest/ },
  {
    breaks: alive,
    plant: { 'server/domain/x.ts': '', 'test/x.test.ts': "import '../server/domain/x.ts'" },
    in: 'server/domain/x.ts',
    expected: /reached by no import/,
  },
  { breaks: alive, plant: CIRCLE, in: 'server/domain/a.ts', expected: /reached by no import/ },
  {
    breaks: /^every other code file/,
    plant: { 'test/helpers/x.ts': '' },
    in: 'test/helpers/x.ts',
    expected: /reached by/,
  },
  {
    breaks: /^every other code file/,
    plant: { 'scripts/dev/x.ts': '' },
    in: 'scripts/dev/x.ts',
    expected: /reached by/,
  },
  {
    breaks: /^package\.json and \.ci name/,
    plant: { '.ci/run': 'tsx scripts/dev/gone.ts' },
    in: '.ci/run',
    expected: /names scripts\/dev\/gone\.ts/,
  },
  ...[
    'const a = process.env.A',
    "const a = process?.env['A']",
    "const a = process['env']",
    "const a = process?.['env']",
    'const { argv, env } = process',
    "import { env } from 'node:process'",
  ].map((source) => ({
    breaks: environment,
    plant: { 'scripts/lib/x.mjs': source },
    in: 'scripts/lib/x.mjs',
    expected: /line 1: reads the environment/,
  })),
  ...['server/domain/x.ts', 'plugin/x.ts', 'scripts/x.mjs'].map((file) => ({
    breaks: environment,
    plant: { [file]: 'process.env' },
    in: file,
    expected: /reads the environment/,
  })),
  ...[
    'test.skip("x")',
    'describe.only("x")',
    't.todo()',
    'test("x", { skip: true })',
    'test("x", { skip: !hasBrowser })',
    'test("x", { skip: isRoot || !hasBrowser() })',
    'test("x", { todo })',
  ].flatMap((source) =>
    ['test/x.test.ts', 'test/helpers/x.ts'].map((file) => ({
      breaks: skips,
      plant: { [file]: source },
      in: file,
      expected: /leaves tests out/,
    })),
  ),
  { breaks: secret, plant: { 'README.md': `Bearer ${TOKEN}` }, in: 'README.md', expected: /an agent token/ },
  { breaks: secret, plant: { 'test/x.test.ts': `'${JWT}'` }, in: 'test/x.test.ts', expected: /a JWT/ },
  { breaks: secret, plant: { a: `sb_${'secret'}_${'x'.repeat(22)}` }, in: 'a', expected: /Supabase/ },
  {
    breaks: secret,
    plant: { a: ['-----BEGIN', 'EC PRIVATE', 'KEY-----'].join(' ') },
    in: 'a',
    expected: /private key/,
  },
  {
    breaks: /^every package/,
    plant: { 'server/db/x.ts': "import 'postgres/x'" },
    in: 'server/db/x.ts',
    expected: /imports postgres, undeclared/,
  },
  {
    breaks: /^every package/,
    plant: { 'server/mcp/x.ts': "import '@modelcontextprotocol/server'" },
    in: 'server/mcp/x.ts',
    expected: /imports @modelcontextprotocol\/server/,
  },
]

/** What a careless scanner would take for a violation. */
export const INNOCENT: Files = {
  'server/wakes/bus.ts':
    "import '../errors.ts' // import '../http/x.ts'\nconst a = 'import \"../db/connect.ts\"' // process.env\n`process.env`",
  'server/db/connect.ts': 'const environment = { env: process.pid }\nconst { env } = environment',
  'test/x.test.ts':
    "const only = list.only\nconst source = 'test.skip()' // { todo: true }\ntest('x', { skip: process.platform === 'win32' || !isRoot })",
  'test/fixtures/recorded.jsonl': JWT,
  'README.md': 'pc_TOKEN, pc_…, `Bearer pc_xxxxx`, eyJhbGciOiJIUzI1NiJ9',
}
