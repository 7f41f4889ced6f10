import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chown, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { discoverIdentities, parseBase } from '../../scripts/lib/mcp-json.cjs'
import { entry, OTHER_TOKEN, TOKEN } from './listener-process.ts'

const isRoot = process.getuid?.() === 0
const MISSING = '.mcp.json missing mcpServers.patchcord.url or Authorization'

async function setUp(context: TestContext) {
  const root = await mkdtemp(join(tmpdir(), 'patchcord-discovery-'))
  context.after(() => rm(root, { recursive: true, force: true }))
  await mkdir(join(root, 'repository', 'deep', 'deeper'), { recursive: true })
  return root
}

function discover(
  folder: string,
  variables: Record<string, string> = {},
  pair: { url: string; token: string } | null = null,
) {
  return discoverIdentities({ folder, pair, lookup: (name) => variables[name] })
}

/** The identities of one .mcp.json. */
async function discoverFrom(context: TestContext, content: unknown, variables: Record<string, string> = {}) {
  const root = await setUp(context)
  await writeFile(join(root, '.mcp.json'), typeof content === 'string' ? content : JSON.stringify(content))
  return discover(root, variables)
}

function servers(url: string, authorization: string) {
  return { mcpServers: { patchcord: { type: 'http', url, headers: { Authorization: authorization } } } }
}

test('the entry gives base, origin and token', async (context) => {
  const { identities, problem } = await discoverFrom(
    context,
    servers('https://pc.example/team/mcp/bearer', `Bearer ${TOKEN}`),
  )
  assert.deepEqual(identities, [{ base: 'https://pc.example/team', origin: 'https://pc.example', token: TOKEN }])
  assert.equal(problem, null)
})

test('a byte order mark, another case of the header and a missing type are fine', async (context) => {
  const json = JSON.stringify({
    mcpServers: { 'patchcord-2': { url: 'https://a.example/mcp', headers: { authorization: `bearer  ${TOKEN} ` } } },
  })
  const { identities } = await discoverFrom(context, `\ufeff${json}`)
  assert.equal(identities.length, 1)
})

test('every entry by its name or by its bearer is an identity, the same one only once', async (context) => {
  const { identities } = await discoverFrom(context, {
    mcpServers: {
      patchcord: entry('https://a.example', TOKEN),
      'patchcord-again': entry('https://a.example', TOKEN),
      mail: entry('https://b.example', OTHER_TOKEN),
      github: entry('https://c.example', 'ghp_0123456789'),
      local: { command: 'node', args: ['x'] },
      patchcordStdio: { type: 'stdio', command: 'node' },
    },
  })
  assert.deepEqual(
    identities.map(({ base, token }) => [base, token]),
    [
      ['https://a.example', TOKEN],
      ['https://b.example', OTHER_TOKEN],
    ],
  )
})

test('parents count up to the repository root and no further; the nearest entry of a name wins', async (context) => {
  const root = await setUp(context)
  const repository = join(root, 'repository')
  const deeper = join(repository, 'deep', 'deeper')
  await writeFile(
    join(root, '.mcp.json'),
    JSON.stringify({ mcpServers: { patchcordX: entry('https://outside.example', TOKEN) } }),
  )
  assert.equal(
    (await discover(deeper)).problem,
    `no .mcp.json in ${deeper}`,
    'outside of a repository only the folder itself',
  )
  await mkdir(join(repository, '.git'))
  assert.equal((await discover(deeper)).problem, `no .mcp.json in ${deeper}`)
  await writeFile(
    join(repository, '.mcp.json'),
    JSON.stringify({
      mcpServers: {
        patchcord: entry('https://root.example', TOKEN),
        patchcord2: entry('https://second.example', TOKEN),
      },
    }),
  )
  await writeFile(
    join(deeper, '.mcp.json'),
    JSON.stringify({ mcpServers: { patchcord: entry('https://near.example', TOKEN) } }),
  )
  const bases = (await discover(deeper)).identities.map(({ base }) => base)
  assert.deepEqual(bases, ['https://near.example', 'https://second.example'])
})

test('what belongs to another user names nobody, and is no root of a repository', {
  skip: process.platform === 'win32',
}, async (context) => {
  const root = await setUp(context)
  const deep = join(root, 'repository', 'deep')
  const mine = process.getuid?.() ?? 0
  const file = join(root, 'repository', '.mcp.json')
  await mkdir(join(root, 'repository', '.git'))
  await writeFile(file, JSON.stringify({ mcpServers: { patchcord: entry('https://evil.example', TOKEN) } }))
  const input = { pair: null, lookup: () => undefined }
  assert.equal((await discoverIdentities({ ...input, folder: deep, uid: mine })).identities.length, 1)
  const strange = await discoverIdentities({ ...input, folder: join(root, 'repository'), uid: mine + 1 })
  assert.deepEqual(strange.identities, [])
  assert.match(strange.notes.join('\n'), /\.mcp\.json belongs to another user and is left out/)
  const above = await discoverIdentities({ ...input, folder: deep, uid: mine + 1 })
  assert.deepEqual([above.identities, above.notes], [[], []], 'not even looked at')
  assert.equal((await discoverIdentities({ ...input, folder: deep, uid: null })).identities.length, 1)
})

test('a repository of another user ends the way up, whoever owns the files above', {
  skip: !isRoot,
}, async (context) => {
  const root = await setUp(context)
  const repository = join(root, 'repository')
  const deep = join(repository, 'deep')
  await mkdir(join(root, '.git'))
  await mkdir(join(repository, '.git'))
  const json = JSON.stringify({ mcpServers: { patchcord: entry('https://evil.example', TOKEN) } })
  for (const folder of [root, repository]) await writeFile(join(folder, '.mcp.json'), json)
  assert.equal((await discover(deep)).identities.length, 1)
  await chown(join(repository, '.git'), 12_345, 12_345)
  assert.deepEqual((await discover(deep)).identities, [])
  assert.equal((await discover(repository)).identities.length, 1)
  await chown(join(repository, '.mcp.json'), 12_345, 12_345)
  assert.deepEqual((await discover(repository)).identities, [])
})

test('variables are expanded, with defaults', async (context) => {
  const found = await discoverFrom(
    context,
    servers(`\${PATCHCORD_SERVER:-https://default.example}/mcp`, `Bearer \${MY_TOKEN}`),
    { MY_TOKEN: TOKEN },
  )
  assert.deepEqual(found.identities, [
    { base: 'https://default.example', origin: 'https://default.example', token: TOKEN },
  ])
})

test('a repository cannot make us send a secret of the environment', async (context) => {
  const secrets = {
    AWS_KEY: 'AKIAABCDEF',
    PATCHCORD_SIGNING_KEY: 'private',
    PATCHCORD_TOKEN: TOKEN,
    DATABASE_URL: 'postgres://u:p@h/d',
    HOOK: 'https://h.example/secret',
  }
  const urls = [
    'https://evil.example/$',
    'https://$.evil.example/',
    '$',
    'https://evil.example/mcp?x=$',
    'https://evil.example:1/$/mcp',
  ]
  for (const name of Object.keys(secrets)) {
    for (const url of urls) {
      const template = url.replace('$', `\${${name}}`)
      const { identities } = await discoverFrom(context, servers(template, `Bearer ${TOKEN}`), secrets)
      const isItsOwnAddress = name === 'HOOK' && url === '$'
      assert.equal(identities.length, isItsOwnAddress ? 1 : 0, template)
    }
  }
  const authorizations = [
    `Bearer \${AWS_KEY}`,
    `Basic ${TOKEN}`,
    `Bearer \${PATCHCORD_TOKEN}x`,
    'Bearer',
    `Bearer \${NOTHING}`,
  ]
  for (const authorization of authorizations) {
    const found = await discoverFrom(context, servers('https://evil.example/mcp', authorization), secrets)
    assert.deepEqual([found.identities, found.problem], [[], MISSING], authorization)
  }
})

test('plain http is for this machine only, and an address carries no password', () => {
  for (const url of [
    'http://localhost:8787/mcp',
    'http://127.0.0.1:1',
    'http://[::1]:8787/mcp',
    'http://127.9.9.9/mcp',
    'https://x.example',
  ]) {
    assert.notEqual(parseBase(url), null, url)
  }
  for (const url of [
    'http://pc.example/mcp',
    'http://127.0.0.1.evil.example/',
    'http://localhost.evil.example',
    'https://u:p@x.example/',
    'ftp://localhost/',
    'file:///etc/passwd',
    'x',
    '',
    'http://10.0.0.1/',
  ]) {
    assert.equal(parseBase(url), null, url)
  }
})

test('a file that cannot be parsed gives the sentence with the place and nothing of the content', async (context) => {
  const cases = {
    '{"a": pc_secret}': /^\.mcp\.json parse error: (?:unexpected character at line 1 column 7|not valid JSON)$/,
    '{\n  "a": 1,\n}': /^\.mcp\.json parse error: unexpected character at line 3 column 1$/,
    '{"mcpServers": {': /^\.mcp\.json parse error: /,
    '': /^\.mcp\.json parse error: unexpected end of the file$/,
  }
  for (const [text, pattern] of Object.entries(cases)) {
    const { problem, identities, isBroken } = await discoverFrom(context, text)
    assert.match(problem ?? '', pattern)
    assert.doesNotMatch(problem ?? '', /pc_/)
    assert.deepEqual([identities, isBroken], [[], true])
  }
})

test('JSON of another shape has no entry', async (context) => {
  for (const json of [
    'null',
    '[]',
    '7',
    '{}',
    '{"mcpServers":[]}',
    '{"mcpServers":{"patchcord":null}}',
    '{"mcpServers":{"patchcord":{"url":5,"headers":[]}}}',
  ]) {
    const { problem } = await discoverFrom(context, json)
    assert.equal(problem, MISSING, json)
  }
})

test('a folder, a huge file and a named pipe in the place of the file do not hold us', {
  skip: process.platform === 'win32',
}, async (context) => {
  const root = await setUp(context)
  const file = join(root, '.mcp.json')
  execFileSync('mkfifo', [file])
  assert.equal((await discover(root)).problem, '.mcp.json parse error: not a file')
  await rm(file)
  await mkdir(file)
  assert.match((await discover(root)).problem ?? '', /^\.mcp\.json parse error: /)
  await rm(file, { recursive: true })
  await writeFile(file, ' '.repeat(1024 * 1024 + 1))
  assert.equal((await discover(root)).problem, '.mcp.json parse error: over 1 MiB')
})

test('PATCHCORD_URL and PATCHCORD_TOKEN go before any file', async (context) => {
  const root = await setUp(context)
  const found = await discover(root, {}, { url: 'https://pc.example', token: TOKEN })
  assert.deepEqual(found.identities, [{ base: 'https://pc.example', origin: 'https://pc.example', token: TOKEN }])
  const broken = await discover(root, {}, { url: 'https://pc.example', token: 'secret' })
  assert.deepEqual([broken.identities, broken.problem], [[], 'PATCHCORD_URL or PATCHCORD_TOKEN is not valid'])
})

test('a megabyte that is written to be slow is read in no time', async (context) => {
  const length = 1_000_000
  const slow = [
    servers(`http://127.0.0.1/${'/'.repeat(length)}x`, `Bearer ${TOKEN}`),
    servers(`\${A:-${'${A:-'.repeat(length / 5)}`, `Bearer ${TOKEN}`),
    servers('https://a.example', '${A:-'.repeat(length / 5)),
    servers('https://a.example', '${A'.repeat(length / 3)),
    servers('https://a.example', `Bearer${' '.repeat(length)}x`),
    servers('https://a.example', `$${'{A}$'.repeat(length / 4)}`),
    servers(`$${'{A}$'.repeat(900)}`, `Bearer ${TOKEN}`),
  ]
  for (const content of slow) {
    const before = process.cpuUsage()
    const { identities, problem } = await discoverFrom(context, content, { A: 'a'.repeat(100_000) })
    const { user } = process.cpuUsage(before)
    assert.deepEqual([identities, problem], [[], MISSING], 'and names nobody')
    assert.ok(user < 1_500_000, `${user} µs of processor time`)
  }
})

test('a link out of the repository names nobody, be it to the project beside it or to a file without end; one inside does', {
  skip: process.platform === 'win32',
}, async (context) => {
  const root = await setUp(context)
  const repository = join(root, 'repository')
  const deep = join(repository, 'deep')
  const evil = join(deep, '.mcp.json')
  await mkdir(join(root, 'backend'))
  await writeFile(join(root, 'backend', '.mcp.json'), JSON.stringify(servers('https://pc.example', `Bearer ${TOKEN}`)))
  await mkdir(join(repository, '.git'))
  const targets = ['../../backend/.mcp.json', '../out/.mcp.json', '/proc/self/pagemap']
  await symlink('../backend', join(repository, 'out'))
  for (const target of process.platform === 'linux' ? targets : targets.slice(0, 2)) {
    await rm(evil, { force: true })
    await symlink(target, evil)
    const { identities, problem, isBroken, notes } = discover(deep)
    assert.deepEqual([identities, isBroken], [[], false], target)
    assert.equal(problem, '.mcp.json leads out of this project through a symlink, put a file in its place')
    assert.deepEqual(notes, [
      `${evil} leads out of this project through a symlink and is left out: put a file in its place`,
    ])
  }
  await rm(join(repository, '.git'), { recursive: true })
  await rm(evil)
  await symlink('../shared.json', evil)
  await writeFile(join(repository, 'shared.json'), JSON.stringify(servers('https://pc.example', `Bearer ${TOKEN}`)))
  assert.deepEqual(discover(deep).identities, [], 'without a repository the folder is the project')
  await mkdir(join(repository, '.git'))
  assert.equal(discover(deep).identities.length, 1)
  assert.deepEqual(discover(deep, { HOME: repository }).identities, [], 'a home in a repository is not one project')
})

test('a folder that is reached through a symlink is the project that it is', {
  skip: process.platform === 'win32',
}, async (context) => {
  const root = await setUp(context)
  await writeFile(
    join(root, 'repository', '.mcp.json'),
    JSON.stringify(servers('https://pc.example', `Bearer ${TOKEN}`)),
  )
  await symlink('repository', join(root, 'link'))
  assert.equal(discover(join(root, 'link')).identities.length, 1)
  await mkdir(join(root, 'repository', '.git'))
  assert.equal(discover(join(root, 'link', 'deep')).identities.length, 1)
})

test('all files of a deep path together cost no more than one of a mebibyte', {
  skip: process.platform === 'win32',
}, async (context) => {
  const root = await setUp(context)
  await mkdir(join(root, '.git'))
  await writeFile(join(root, 'slow.json'), '['.repeat(1_000_000))
  const folders = Array.from({ length: 40 }, (_, depth) => join(root, ...Array(depth + 1).fill('d')))
  await mkdir(folders.at(-1) ?? '', { recursive: true })
  for (const folder of folders) await symlink(join(root, 'slow.json'), join(folder, '.mcp.json'))
  const before = process.cpuUsage()
  const { identities, notes, isBroken } = discover(folders.at(-1) ?? '')
  const { user } = process.cpuUsage(before)
  assert.deepEqual([identities, isBroken, notes.length], [[], true, 2])
  assert.match(notes[1] ?? '', /: \.mcp\.json parse error: over 1 MiB with those below it$/)
  assert.ok(user < 1_000_000, `${user} µs of processor time`)
  await writeFile(join(root, 'slow.json'), '{}')
  const many = discover(folders.at(-1) ?? '')
  assert.deepEqual([many.notes.length, many.isBroken], [1, false])
  assert.match(many.notes[0] ?? '', / is left out, as are those above it: 16 files are read for one folder, not more$/)
})
