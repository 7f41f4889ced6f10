import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { parse } from 'jsonc-parser'
import { type Entry, planEntry, planIgnore, planRules, undoEdit } from '../../plugin/lib/edits.ts'

const FILE = '/project/.mcp.json'
const ENTRY: Entry = { type: 'http', url: 'https://x.example/mcp/bearer', headers: { Authorization: 'Bearer $T' } }
const RUNS = 400

const bytes = (text: string) => Buffer.from(text, 'utf8')
const connect = (text: string, entry = ENTRY) => planEntry(FILE, bytes(text), entry)
const connected = (text: string) => connect(text).next.toString('utf8')

/** JSON with everything that people and editors put into it, as text. */
const blanks = fc.constantFrom('', ' ', '  ', '\t', '\n', '\n  ', '\r\n\t', ' // c, }\n', ' /* "a": { , } */ ', '\n\n')
const name = fc.constantFrom('a', 'b', 'url', 'patchcord2', 'constructor', 'x"y', '//', 'é', 'permissions')
const leaf = fc.constantFrom('1', 'null', 'true', '"https://x.example//y"', '"/* , } */"', '"\\u00e9, }"', '-1.5e3')

const { value } = fc.letrec<{ value: string; object: string; array: string }>((tie) => ({
  value: fc.oneof({ depthSize: 'small' }, leaf, tie('object'), tie('array')),
  object: fc
    .tuple(
      fc.uniqueArray(fc.tuple(name, tie('value'), blanks, blanks), { maxLength: 4, selector: ([key]) => key }),
      blanks,
      fc.boolean(),
    )
    .map(([properties, end, hasTrailingComma]) => {
      const parts = properties.map(
        ([key, text, before, after]) => `${before}${JSON.stringify(key)}:${after}${text}${after}`,
      )
      return `{${parts.join(',')}${hasTrailingComma && parts.length > 0 ? ',' : ''}${end}}`
    }),
  array: fc
    .tuple(fc.array(tie('value'), { maxLength: 3 }), blanks)
    .map(([items, end]) => `[${items.join(`${end},`)}${end}]`),
}))

const servers = fc
  .tuple(fc.uniqueArray(fc.tuple(name, value), { maxLength: 3, selector: ([key]) => key }), blanks, fc.boolean())
  .map(([entries, end, comma]) => {
    const parts = entries.map(([key, text]) => `${end}${JSON.stringify(key)}: ${text}`)
    return `{${parts.join(',')}${comma && parts.length > 0 ? ',' : ''}${end}}`
  })

/** A whole file: with or without a byte order mark, servers, other keys around them. */
const file = fc
  .record({
    mark: fc.constantFrom('', '\ufeff'),
    before: blanks,
    first: value,
    servers,
    last: value,
    end: blanks,
    shape: fc.nat(4),
  })
  .map(({ mark, before, first, servers, last, end, shape }) => {
    const inner = [
      `${before}"first": ${first},${end}"mcpServers": ${servers},${before}"last": ${last}${end}`,
      `${before}"first": ${first}${end}`,
      `${before}"mcpServers": ${servers}${end}`,
      `${end}`,
      `${before}"mcpServers": ${servers},${end}`,
    ][shape]
    return `${mark}${before}{${inner}}${end}`
  })

describe('an edit of .mcp.json', () => {
  test('adds the entry, changes no other value, and undoing it gives the same bytes: any JSON with comments', () => {
    fc.assert(
      fc.property(file, (text) => {
        const plan = connect(text)
        const [before, after] = [text, plan.next.toString('utf8')].map((each) => parse(each.replace(/^\ufeff/, '')))
        assert.deepEqual(after.mcpServers.patchcord, ENTRY)
        delete after.mcpServers.patchcord
        assert.deepEqual(after, { mcpServers: {}, ...before })
        assert.deepEqual(undoEdit(plan.edit, plan.next, bytes(text)), bytes(text))
        // Without the bytes of before, and by structure alone, nothing else changes either.
        assert.equal(undoEdit(plan.edit, plan.next, null)?.toString('utf8'), text)
        const undone = undoEdit({ ...plan.edit, inserted: null }, plan.next, null)?.toString('utf8') ?? '{}'
        const rest = parse(undone.replace(/^\ufeff/, ''))
        assert.deepEqual({ mcpServers: {}, ...rest }, { mcpServers: {}, ...before })
      }),
      { numRuns: RUNS },
    )
  })

  test('undone after somebody else has edited the file takes out our part only: any JSON with comments', () => {
    fc.assert(
      fc.property(file, fc.constantFrom(' ', '\n', '\n// mine\n', '/* mine */'), (text, mine) => {
        const plan = connect(text)
        const brace = plan.next.toString('utf8').indexOf('{') + 1
        const edited = plan.next.toString('utf8')
        const changed = edited.slice(0, brace) + mine + edited.slice(brace)
        const expected = text.slice(0, brace) + mine + text.slice(brace)
        assert.equal(undoEdit(plan.edit, bytes(changed), bytes(text))?.toString('utf8'), expected)
      }),
      { numRuns: RUNS },
    )
  })

  test('replaces an entry in its place and puts the old one back, comments and all', () => {
    const old =
      '{\r\n\t"mcpServers": {\r\n\t\t// ours\r\n\t\t"patchcord": { "url": "https://old", /* why */ },\r\n\t\t"b": 1,\r\n\t},\r\n}'
    const plan = connect(old)
    const next = plan.next.toString('utf8')
    assert.equal(
      next,
      '{\r\n\t"mcpServers": {\r\n\t\t// ours\r\n\t\t"patchcord": {\r\n\t\t\t"type": "http",\r\n\t\t\t"url": "https://x.example/mcp/bearer",\r\n\t\t\t"headers": {\r\n\t\t\t\t"Authorization": "Bearer $T"\r\n\t\t\t}\r\n\t\t},\r\n\t\t"b": 1,\r\n\t},\r\n}',
    )
    assert.deepEqual(undoEdit(plan.edit, plan.next, bytes(old)), bytes(old))
    const edited = bytes(next.replace('"b": 1', '"b": 2'))
    assert.equal(undoEdit(plan.edit, edited, bytes(old))?.toString('utf8'), old.replace('"b": 1', '"b": 2'))
  })

  test('keeps no secret in what is noted of it, and is undone in one piece after the secret has changed', () => {
    for (const text of [
      '{ "a": 1 } // end',
      '{"mcpServers":{"patchcord":{"headers":{"Authorization":"Bearer old"}}}}',
    ]) {
      const plan = connect(text)
      assert.doesNotMatch(JSON.stringify(plan.edit), /Bearer/)
      const changed = bytes(plan.next.toString('utf8').replace('Bearer $T', 'Bearer \\"new'))
      assert.equal(undoEdit(plan.edit, changed, bytes(text))?.toString('utf8'), text)
    }
  })

  test('follows the layout of the file', () => {
    assert.equal(
      connected('{\n    "mcpServers": {\n        "a": {}\n    }\n}\n'),
      '{\n    "mcpServers": {\n        "a": {},\n        "patchcord": {\n            "type": "http",\n            "url": "https://x.example/mcp/bearer",\n            "headers": {\n                "Authorization": "Bearer $T"\n            }\n        }\n    }\n}\n',
    )
    assert.match(
      connected('{"mcpServers":{"a":{"url":"https://a"}}}'),
      /^\{"mcpServers":\{"a":\{"url":"https:\/\/a"\},"patchcord": \{.*\}\}\}$/,
    )
    assert.match(connected('{}'), /^\{\n {2}"mcpServers": \{\n {4}"patchcord": \{\n/)
    assert.match(connected(''), /^\{\n {2}"mcpServers": \{[\s\S]*\}\n$/)
  })

  test('can be made again upon its own result', () => {
    const text = '{\n  "mcpServers": {\n    "a": {\n      "url":\n        "https://a.example"\n    }\n  }\n}\n'
    const once = connect(text)
    const other = { ...ENTRY, url: 'https://y.example/mcp/bearer' }
    const twice = connect(once.next.toString('utf8'), other)
    assert.equal(twice.next.toString('utf8'), once.next.toString('utf8').replace('x.example', 'y.example'))
  })

  test('a key that JavaScript treats as special is a key like any other', () => {
    const text = '{\n  "__proto__": { "a": 1 },\n  "mcpServers": { "__proto__": {} }\n}\n'
    const plan = connect(text)
    assert.match(plan.next.toString('utf8'), /"mcpServers": \{ "__proto__": \{\}, "patchcord": \{/)
    assert.equal(undoEdit(plan.edit, plan.next, null)?.toString('utf8'), text)
  })

  test('strings that look like comments or commas are not touched', () => {
    const text = '{\n  "a": "/* not a comment */",\n  "b": ", }",\n  "c": "https://x//y",\n  "mcpServers": {}\n}'
    const next = connected(text)
    for (const part of ['"/* not a comment */"', '", }"', '"https://x//y"']) assert.ok(next.includes(part))
  })

  for (const [what, text, reason] of [
    ['is no JSON', '{ "mcpServers": ', /\.mcp\.json is not JSON \(line 1\)\. It was left alone\./],
    ['has a list where servers belong', '{ "mcpServers": [] }', /no object where mcpServers/],
    ['is a list', '[]', /is not a JSON object/],
    ['names the servers twice', '{ "mcpServers": {}, "mcpServers": {} }', /names "mcpServers" twice/],
    ['names us twice', '{ "mcpServers": { "patchcord": 1, "patchcord": 2 } }', /names "patchcord" twice/],
    ['is nested a thousand times', `${'{"a":'.repeat(1000)}1${'}'.repeat(1000)}`, /nested too deeply/],
  ] as const) {
    test(`is refused where the file ${what}, and the file is named`, () => {
      assert.throws(() => connect(text), { name: 'CommandError', message: reason })
    })
  }

  for (const [what, text] of [
    ['a string of quotes without an end', `"${'\\"'.repeat(500_000)}`],
    ['comments without an end', '/* '.repeat(300_000)],
    ['braces without a beginning', '}'.repeat(1_000_000)],
    ['brackets without an end', '{"a":['.repeat(150_000)],
    ['commas only', `{${','.repeat(1_000_000)}`],
    ['blanks only in front of a word', `${' \n'.repeat(500_000)}x`],
  ] as const) {
    test(`is refused in a moment where the file is a megabyte of ${what}`, () => {
      const startedAt = performance.now()
      assert.throws(() => connect(text), /is not JSON|nested too deeply/)
      assert.ok(performance.now() - startedAt < 10_000)
    })
  }

  test('is refused where the file is not UTF-8', () => {
    assert.throws(() => planEntry(FILE, Buffer.from('{"a":"\xe9"}', 'latin1'), ENTRY), /is not text in UTF-8/)
  })

  test('leaves an entry alone that names another server by now', () => {
    const plan = connect('{}')
    const moved = bytes(plan.next.toString('utf8').replace('x.example', 'other.example'))
    assert.deepEqual(undoEdit(plan.edit, moved, bytes('{}')), moved)
  })

  test('a file that held nothing but our entry goes, also after it was laid out anew', () => {
    const plan = planEntry(FILE, null, ENTRY)
    assert.equal(undoEdit(plan.edit, plan.next, null), null)
    const tidy = bytes(JSON.stringify(JSON.parse(plan.next.toString('utf8'))))
    assert.equal(undoEdit(plan.edit, tidy, null), null)
    assert.equal(undoEdit(plan.edit, null, null), null)
  })
})

describe('an edit of the permission rules', () => {
  const RULES = ['mcp__patchcord', 'Bash(node "/x/scripts/subscribe.mjs")']
  const SETTINGS = '/project/.claude/settings.local.json'

  test('adds what is missing, and undoing it gives the same bytes', () => {
    for (const text of [
      '{}',
      '{ "permissions": { "allow": ["Read"], "deny": [] } }',
      '{\n  "permissions": {\n    "allow": [\n      "Read", // mine\n    ],\n  },\n}\n',
      '{"permissions":{"allow":["mcp__patchcord"]}}',
      '{"model":"x"}',
    ]) {
      const plan = planRules(SETTINGS, bytes(text), RULES)
      assert.ok(plan)
      const rules = parse(plan.next.toString('utf8')).permissions.allow
      assert.deepEqual(
        rules.filter((rule: string) => RULES.includes(rule)),
        RULES,
      )
      assert.equal(undoEdit(plan.edit, plan.next, null)?.toString('utf8'), text)
    }
    assert.equal(planRules(SETTINGS, bytes(JSON.stringify({ permissions: { allow: RULES } })), RULES), null)
  })

  test('a file that the client has laid out anew and added to keeps what the client added', () => {
    const plan = planRules(SETTINGS, null, RULES)
    assert.ok(plan)
    const json = JSON.parse(plan.next.toString('utf8'))
    json.permissions.allow.push('Bash(ls)')
    const rest = undoEdit(plan.edit, bytes(JSON.stringify(json)), null)
    assert.deepEqual(JSON.parse(rest?.toString('utf8') ?? ''), { permissions: { allow: ['Bash(ls)'] } })
    json.permissions.allow.pop()
    assert.equal(undoEdit(plan.edit, bytes(JSON.stringify(json, null, 4)), null), null)
  })
})

test('a line for .mcp.json is added to .gitignore and taken out again, whatever its line ends', () => {
  for (const text of ['', 'dist\n', 'dist', 'dist\r\nx\r\n']) {
    const plan = planIgnore('/project/.gitignore', bytes(text))
    assert.match(plan.next.toString('utf8'), /^\.mcp\.json\r?$/m)
    assert.equal(undoEdit(plan.edit, plan.next, null)?.toString('utf8'), text)
    const grown = Buffer.concat([plan.next, bytes('more\n')])
    assert.match(undoEdit(plan.edit, grown, null)?.toString('utf8') ?? '', /^(?!.*\.mcp\.json)[\s\S]*more\n$/)
  }
})
