import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { tokenize, tokenizeCode } from './lexer.ts'

const textsOf = (source: string) => tokenizeCode(source).map(({ text }) => text)
/** Sources hold § for the dollar sign, so that nobody takes them for templates whose backticks were forgotten. */
const dollars = (text: string) => text.replaceAll('§', '$')
const kindsOf = (source: string) => tokenizeCode(source).map(({ kind }) => kind)

describe('the lexer', () => {
  test('keeps comments apart, also those that look like code, and the hashbang', () => {
    const tokens = tokenize("#!/usr/bin/env node\n// import 'a'\n/* ' */ x /* open")
    assert.deepEqual(
      tokens.map(({ kind }) => kind),
      ['comment', 'comment', 'comment', 'word', 'comment'],
    )
  })
  test('takes a string whole, with escapes, comments and the other quotes in it', () => {
    assert.deepEqual(textsOf(String.raw`'it\'s // "x"' + "/* '"`), [String.raw`'it\'s // "x"'`, '+', `"/* '"`])
  })
  test('reads the code inside a template, however deep, and nothing else of it', () => {
    const texts = textsOf(dollars('`a §{ {b: `c§{d}`} } // e` f')).map((text) => text.trim())
    assert.deepEqual(texts, dollars('`a|§{|{|b|:|`c|§{|d|}§|`|}|}§|// e`|f').split('|'))
    const plain = dollars('`\\§{a} \\` §b`')
    assert.deepEqual(textsOf(plain), [plain])
  })
  test('tells a regular expression from a division', () => {
    assert.deepEqual(kindsOf('a = /[/"]\\/\'/g'), ['word', 'punctuation', 'regex'])
    assert.deepEqual(kindsOf('return /"/'), ['word', 'regex'])
    assert.equal(kindsOf("(a) / b / 'c'").includes('regex'), false)
    assert.equal(kindsOf("x[0] / y / 'c'").includes('regex'), false)
  })
  test('survives the text and the closing tags of JSX', () => {
    const source = "<ul>{list.map((x) => { return <li>don't {x}</li> })}</ul>"
    const count = (text: string) => textsOf(source).filter((other) => other === text).length
    assert.equal(count('{'), 3)
    assert.equal(count('}'), 3)
  })
  test('numbers lines from 1, across comments, templates and escaped line ends', () => {
    const lines = tokenizeCode(dollars("/*\n*/ a `\n§{b}\n` 'x\\\ny' c")).map(
      ({ text, line }) => `${text.trim()}:${line}`,
    )
    const expected = dollars("a:2|`:2|§{:3|b:3|}§:3|`:3|'x\\\ny':4|c:5")
    assert.deepEqual(lines, expected.split('|'))
  })
})
