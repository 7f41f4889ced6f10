import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmod, lstat, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { toTrustId } from '../../scripts/lib/identity.cjs'
import { findClosedPort, makeToken, ROOT } from './command.ts'
import { useServer } from './connect-server.ts'

const EXISTING =
  '{\r\n\t// mine\r\n\t"mcpServers": {\r\n\t\t"other": {\r\n\t\t\t"url":\r\n\t\t\t\t"https://other.example//x", /* , } */\r\n\t\t},\r\n\t},\r\n}\r\n'

describe('connect', () => {
  const { app, agents, withMachine } = useServer()

  const entryOf = (authorization: string) => ({
    type: 'http',
    url: `${app.url}/mcp/bearer`,
    headers: { Authorization: authorization },
  })

  test(
    'checks the token, writes .mcp.json for this user only, trusts this agent, and says what to do next; disconnect undoes all',
    withMachine(async ({ machine, connect }) => {
      const before = await machine.listFiles()
      const { code, stdout, stderr } = await connect()
      assert.deepEqual([code, stderr], [0, ''])
      assert.match(stdout, /^Connected as backend@acme at http:\/\/127\.0\.0\.1:\d+\.\n {2}wrote \S+\/\.mcp\.json\n/)
      for (const next of ['claude plugin install patchcord@patchcord', `url = "${app.url}/mcp/bearer"`, '/hooks']) {
        assert.ok(stdout.includes(next), next)
      }
      assert.ok(!stdout.includes(agents.backend.token))
      const file = join(machine.project, '.mcp.json')
      assert.deepEqual(JSON.parse(await readFile(file, 'utf8')), {
        mcpServers: { patchcord: entryOf(`Bearer ${agents.backend.token}`) },
      })
      assert.equal((await stat(file)).mode & 0o777, 0o600)
      const trust = join(machine.configFolder, 'trusted.json')
      const trusted = [toTrustId({ base: app.url, token: agents.backend.token })]
      assert.deepEqual(JSON.parse(await readFile(trust, 'utf8')), { trusted })
      for (const own of [trust, join(machine.configFolder, 'connections.json')])
        assert.equal((await stat(own)).mode & 0o777, 0o600)
      const inbox = await machine.run(['inbox', '--json'])
      assert.equal(inbox.json.agent, 'backend')
      const undone = await machine.run(['disconnect', '--json'])
      assert.deepEqual([undone.code, undone.json.agent], [0, 'backend'])
      assert.deepEqual(await machine.listFiles(), before)
      const again = await machine.run(['disconnect', '--json'])
      assert.deepEqual([again.code, again.json.error.code], [1, 'not_connected'])
    }),
  )

  test(
    'adds to a file with comments, other servers, a byte order mark and CRLF, says that clients read plain JSON, and gives the same bytes back',
    withMachine(async ({ machine, connect }) => {
      const file = await machine.write('.mcp.json', `\ufeff${EXISTING}`)
      await chmod(file, 0o640)
      const before = await machine.listFiles()
      const { code, json } = await connect({}, '--json')
      assert.equal(code, 0)
      assert.match(json.warnings.join('\n'), /has comments or trailing commas/)
      assert.match(json.warnings.join('\n'), /Others on this machine can read .*chmod 600/)
      const text = await machine.read('.mcp.json')
      assert.ok(
        text.startsWith(
          '\ufeff{\r\n\t// mine\r\n\t"mcpServers": {\r\n\t\t"other": {\r\n\t\t\t"url":\r\n\t\t\t\t"https://other.example//x", /* , } */\r\n\t\t},\r\n\t\t"patchcord": {\r\n\t\t\t"type": "http",',
        ),
      )
      assert.equal((await stat(file)).mode & 0o777, 0o640)
      // Upon its own result: another connect of the same agent changes nothing.
      assert.equal((await connect()).code, 0)
      assert.equal(await machine.read('.mcp.json'), text)
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.deepEqual(await machine.listFiles(), before)
      assert.equal((await stat(file)).mode & 0o777, 0o640)
    }),
  )

  test(
    'keeps a symlink, and writes where it leads',
    withMachine(async ({ machine, connect }) => {
      const real = await machine.write('dotfiles/mcp.json', '{}\n')
      await symlink(real, join(machine.project, '.mcp.json'))
      assert.equal((await connect()).code, 0)
      assert.ok((await lstat(join(machine.project, '.mcp.json'))).isSymbolicLink())
      assert.match(await readFile(real, 'utf8'), /"patchcord"/)
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.equal(await readFile(real, 'utf8'), '{}\n')
      assert.ok((await lstat(join(machine.project, '.mcp.json'))).isSymbolicLink())
    }),
  )

  test(
    'writes nothing for a token that the server refuses, is no token, or that it cannot ask about',
    withMachine(async ({ machine, connect }) => {
      await machine.write('.mcp.json', EXISTING)
      const before = await machine.listFiles()
      const refused = await connect({ stdin: makeToken('z') }, '--json')
      assert.deepEqual([refused.code, refused.json.error.code], [4, 'token_rejected'])
      const mistyped = await connect({ stdin: 'pc_short' })
      assert.equal(mistyped.code, 4)
      assert.match(mistyped.stderr, /cut off or mistyped\. Nothing was written/)
      const port = await findClosedPort()
      const gone = await machine.run(['connect', '--server', `http://127.0.0.1:${port}`, '--token-stdin'], {
        stdin: agents.backend.token,
      })
      assert.equal(gone.code, 1)
      const none = await machine.run(['connect', '--server', app.url, '--json'])
      assert.deepEqual([none.code, none.json.error.code], [4, 'token_missing'])
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  test(
    'refuses a token on the command line, and says that it is known now',
    withMachine(async ({ machine }) => {
      for (const args of [
        ['--token', agents.backend.token],
        [`--token=${agents.backend.token}`],
        [agents.backend.token],
      ]) {
        const { code, stderr } = await machine.run(['connect', '--server', app.url, ...args])
        assert.equal(code, 1)
        assert.match(stderr, /does not belong into a command line: it is in the shell history .* rotate it/)
        assert.ok(!stderr.includes(agents.backend.token))
      }
      assert.deepEqual(await machine.listFiles(), {})
    }),
  )

  test(
    'speaks plain http to this machine only, and to no address with a login in it',
    withMachine(async ({ machine }) => {
      for (const url of ['http://server.example', 'https://me:secret@server.example', 'ftp://x', 'nonsense']) {
        const { code, json } = await machine.run(['connect', '--server', url, '--token-stdin', '--json'], {
          stdin: agents.backend.token,
        })
        assert.deepEqual([code, json.error.code], [1, 'usage'])
      }
    }),
  )

  test(
    'leaves a file alone that it cannot parse, and names it',
    withMachine(async ({ machine, connect }) => {
      for (const text of [
        '{ "mcpServers": ',
        '[]',
        '{ "mcpServers": {}, "mcpServers": {} }',
        Buffer.from('{"a":"\xe9"}', 'latin1'),
      ]) {
        const file = await machine.write('.mcp.json', text)
        const before = await machine.listFiles()
        const { code, stderr } = await connect()
        assert.equal(code, 1)
        assert.ok(stderr.includes(`${file} `) && stderr.includes('It was left alone.'), stderr)
        assert.deepEqual(await machine.listFiles(), before)
      }
    }),
  )

  test(
    'does not take the place of another server or agent in passing; --replace does, and disconnect puts it back',
    withMachine(async ({ machine, connect }) => {
      const other = JSON.stringify(
        { mcpServers: { patchcord: { type: 'http', url: 'https://other.example/mcp' } } },
        null,
        2,
      )
      await machine.write('.mcp.json', other)
      const refused = await connect()
      assert.equal(refused.code, 1)
      assert.match(
        refused.stderr,
        /connects this folder to https:\/\/other\.example\/mcp already\. Nothing was changed\. .*--replace/,
      )
      assert.equal((await connect({}, '--replace')).code, 0)
      assert.equal(JSON.parse(await machine.read('.mcp.json')).mcpServers.patchcord.url, `${app.url}/mcp/bearer`)
      const frontend = await connect({ as: 'frontend' })
      assert.match(frontend.stderr, /to backend@acme at /)
      assert.equal((await connect({ as: 'frontend' }, '--replace')).code, 0)
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.equal(await machine.read('.mcp.json'), other)
    }),
  )

  test(
    'writes into this folder and our own one only, and says what belongs into the configuration of Codex instead of writing it',
    withMachine(async ({ machine, connect }) => {
      const ours = ['/.config/patchcord/connections.json', '/.config/patchcord/trusted.json', '/project/.mcp.json']
      for (const text of [
        '[mcp_servers.patchcord]\r\nurl = "https://old.example"\r\n',
        '[mcp_servers.patchcord.http_headers]\n"Authorization" = "Bearer old"\n',
        'mcp_servers = { patchcord = { url = "https://old.example" } }\n',
        'no = TOML = at all',
      ]) {
        const folder = join(machine.root, '.codex')
        await mkdir(folder, { recursive: true })
        await writeFile(join(folder, 'config.toml'), text)
        await machine.write('.codex/config.toml', text)
        const before = await machine.listFiles()
        const { code, stdout } = await connect()
        assert.equal(code, 0)
        assert.match(stdout, /\n {2}Put this into \.codex\/config\.toml .*\n {4}\[mcp_servers\.patchcord\]\n {4}url = /)
        const after = await machine.listFiles()
        const changed = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
          (file) => before[file] !== after[file],
        )
        assert.deepEqual(changed.sort(), ours)
        assert.equal((await machine.run(['disconnect'])).code, 0)
        assert.deepEqual(await machine.listFiles(), before)
      }
    }),
  )

  test(
    'with --env names the variable instead of holding the token, and does not touch .gitignore',
    withMachine(async ({ machine }) => {
      await mkdir(join(machine.project, '.git'))
      const env = { TEAM_TOKEN: agents.backend.token }
      const { code, stdout } = await machine.run(['connect', '--server', `${app.url}/mcp`, '--env', 'TEAM_TOKEN'], {
        env,
      })
      assert.equal(code, 0)
      assert.match(stdout, /TEAM_TOKEN must be set where claude is started/)
      const { headers } = JSON.parse(await machine.read('.mcp.json')).mcpServers.patchcord
      assert.equal(headers.Authorization, 'Bearer $' + '{TEAM_TOKEN}')
      assert.ok(!('/project/.gitignore' in (await machine.listFiles())))
      assert.equal((await machine.run(['inbox', '--json'], { env })).json.agent, 'backend')
    }),
  )

  test(
    'keeps a literal token out of git, and refuses to write it when git tracks the file already',
    withMachine(async ({ machine, connect }) => {
      const git = (...args: string[]) =>
        execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', ...args], {
          cwd: machine.project,
          env: machine.environment(),
        })
      git('init', '-q')
      await machine.write('.gitignore', 'dist')
      assert.equal((await connect()).code, 0)
      assert.equal(await machine.read('.gitignore'), 'dist\n.mcp.json\n')
      assert.equal(git('status', '--porcelain').toString(), '?? .gitignore\n')
      // Again, as with a new token: the line stays one, and is still known to be ours.
      assert.equal((await connect()).code, 0)
      assert.equal(await machine.read('.gitignore'), 'dist\n.mcp.json\n')
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.equal(await machine.read('.gitignore'), 'dist')
      await machine.write('.mcp.json', '{}')
      git('add', '.mcp.json')
      const { code, json } = await connect({}, '--json')
      assert.deepEqual([code, json.error.code], [1, 'token_in_git'])
      assert.match(`${json.error.message} ${json.error.hint}`, /git tracks .*Nothing was written.*git rm --cached/)
      assert.equal(await machine.read('.mcp.json'), '{}')
    }),
  )

  test(
    'with --allow writes the rules that a wake needs, beside what is there, and takes them out again',
    withMachine(async ({ machine, connect }) => {
      const version = (await machine.run(['--version'])).stdout.trim()
      const settings = await machine.write(
        '.claude/settings.local.json',
        '{ "permissions": { "allow": ["Bash(ls)"] } }',
      )
      const installed = join(machine.root, '.claude/plugins/installed_plugins.json')
      await mkdir(join(machine.root, '.claude/plugins'), { recursive: true })
      await writeFile(
        installed,
        JSON.stringify({ version: 2, plugins: { 'patchcord@x': [{ installPath: '/cache/patchcord' }] } }),
      )
      const before = await machine.listFiles()
      assert.equal((await connect({}, '--allow')).code, 0)
      assert.deepEqual(JSON.parse(await readFile(settings, 'utf8')).permissions.allow, [
        'Bash(ls)',
        'mcp__patchcord',
        `Bash(node "${ROOT}scripts/subscribe.mjs")`,
        `Bash(node "${machine.root}/.claude/plugins/cache/patchcord/patchcord/${version}/scripts/subscribe.mjs")`,
        'Bash(node "/cache/patchcord/scripts/subscribe.mjs")',
      ])
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  test(
    'with --allow names the folder of a marketplace that is read in place, and no other and no strange place',
    withMachine(async ({ machine, connect }) => {
      const plugins = join(machine.root, '.claude/plugins')
      await mkdir(plugins, { recursive: true })
      const market = (installLocation: unknown, source: unknown = { source: 'directory', path: '/m' }) => ({
        source,
        installLocation,
        lastUpdated: '2026-01-01T00:00:00.000Z',
      })
      const listFolders = async (known: unknown) => {
        await writeFile(
          join(plugins, 'known_marketplaces.json'),
          typeof known === 'string' ? known : JSON.stringify(known),
        )
        assert.equal((await connect({}, '--allow')).code, 0)
        const rules: string[] = JSON.parse(await machine.read('.claude/settings.local.json')).permissions.allow
        assert.equal((await machine.run(['disconnect'])).code, 0)
        return rules.slice(3)
      }
      assert.deepEqual(await listFolders({ other: market('/other'), patchcord: market('/our market') }), [
        'Bash(node "/our market/scripts/subscribe.mjs")',
      ])
      const github = { source: 'github', repo: 'someone/patchcord' }
      const strange = ['relative', '/any/*', '/a" && "b', '/a$(b)', '/a\nb', 7, null, ['/a']].map((place) =>
        market(place),
      )
      for (const known of [market('/clone', github), market('/m', null), '/m', null, ...strange])
        assert.deepEqual(await listFolders({ patchcord: known }), [], JSON.stringify(known))
      for (const known of ['{ "patchcord": {', '[]', 'null']) assert.deepEqual(await listFolders(known), [], known)
    }),
  )

  test(
    'undone after edits of others takes out our part only, everywhere',
    withMachine(async ({ machine, connect }) => {
      await mkdir(join(machine.project, '.git'))
      await machine.write('.mcp.json', '{\n  "mcpServers": {}\n}\n')
      assert.equal((await connect({}, '--allow')).code, 0)
      const json = JSON.parse(await machine.read('.mcp.json'))
      json.mcpServers.mine = { type: 'http', url: 'https://mine.example' }
      await machine.write('.mcp.json', JSON.stringify(json, null, 4))
      const rules = JSON.parse(await machine.read('.claude/settings.local.json'))
      rules.permissions.allow.unshift('Bash(ls)')
      await machine.write('.claude/settings.local.json', JSON.stringify(rules))
      await machine.write('.gitignore', `node_modules\n${await machine.read('.gitignore')}`)
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.deepEqual(JSON.parse(await machine.read('.mcp.json')), { mcpServers: { mine: json.mcpServers.mine } })
      assert.deepEqual(JSON.parse(await machine.read('.claude/settings.local.json')), {
        permissions: { allow: ['Bash(ls)'] },
      })
      assert.equal(await machine.read('.gitignore'), 'node_modules\n')
      const everything = Object.values(await machine.listFiles()).map((file) => Buffer.from(file, 'base64').toString())
      for (const text of everything) assert.ok(!text.includes(agents.backend.token) && !text.includes(app.url))
    }),
  )
})
