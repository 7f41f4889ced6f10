import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { resolveImport, scanImports, scanJsdocImports } from './imports.ts'

/** Sources hold § for the dollar sign, so that nobody takes them for templates whose backticks were forgotten. */
const summarize = (source: string) =>
  scanImports(source.replaceAll('§', '$')).map(
    ({ specifier, kind, isTypeOnly }) => `${isTypeOnly ? 'type ' : ''}${kind} ${specifier}`,
  )

describe('the import scanner', () => {
  const cases: [source: string, expected: string[]][] = [
    ["import 'a'", ['static a']],
    ["import a from 'a'", ['static a']],
    ['import a, { b as c, from } from "a"', ['static a']],
    ["import * as a from 'a'", ['static a']],
    ["import {\n  a,\n  // from 'x'\n  type B,\n} from 'a'\nimport b from 'b'", ['static a', 'static b']],
    ["import data from './a.json' with { type: 'json' }", ['static ./a.json']],
    ["import type { A } from 'a'", ['type static a']],
    ["import type A from 'a'", ['type static a']],
    ["import type * as A from 'a'", ['type static a']],
    ["import type from 'a'", ['static a']],
    ["import { type A } from 'a'", ['static a']],
    ["export { a } from 'a'", ['static a']],
    ["export * from 'a'; export * as b from 'b'", ['static a', 'static b']],
    ["export type { A } from 'a'", ['type static a']],
    ["export { a }\nconst from = 'x'", []],
    ["export const from = 'x'\nexport type A = { from: 'y' }", []],
    ["await import('a')", ['dynamic a']],
    ['await import(`a`)', ['dynamic a']],
    ["import('a', { with: {} })", ['dynamic a']],
    ['import(`a/§{b}`)', ['dynamic null']],
    ["import(name); import('a' + b)", ['dynamic null', 'dynamic null']],
    ["let a: typeof import('a')", ['type dynamic a']],
    ["require('a'); require.resolve('b'); x.require('c')", ['require a']],
    ['`§{await import("a")} import "b"`', ['dynamic a']],
    ["// import 'a'\n/** @import { A } from 'b' */\nconst c = \"import 'd'\"", []],
    ['const r = /import "a"/', []],
    ['import.meta.url; a.import("b"); x.constructor.toString()', []],
    ["const o = { import: 1, export: 2 }\nconst from = 'x'", []],
  ]
  for (const [source, expected] of cases) {
    test(`finds ${expected.join(' and ') || 'nothing'} in ${JSON.stringify(source)}`, () => {
      assert.deepEqual(summarize(source), expected)
    })
  }
  test('gives the line of each import', () => {
    assert.deepEqual(
      scanImports("/*\n*/\nimport 'a'\nimport 'b'").map(({ line }) => line),
      [3, 4],
    )
  })
  test('finds types that JSDoc borrows', () => {
    const source = "/** @import { A } from './a.d.ts' */\n/** @type {import('./b.d.ts').B} */\nimport 'c'"
    assert.deepEqual(scanJsdocImports(source), ['./a.d.ts', './b.d.ts'])
  })
  test('resolves a relative specifier to a file of the tree, whatever its ending', () => {
    const tree = new Map(['a/b.ts', 'a/c.mjs', 'd/index.ts'].map((path) => [path, '']))
    const resolve = (specifier: string) => resolveImport(tree, 'a/x.ts', specifier)
    assert.equal(resolve('./b.ts'), 'a/b.ts')
    assert.equal(resolve('./b.js'), 'a/b.ts')
    assert.equal(resolve('./c.mjs'), 'a/c.mjs')
    assert.equal(resolve('../d'), 'd/index.ts')
    assert.equal(resolve('b.ts'), null)
    assert.equal(resolve('./gone.ts'), null)
  })
})
