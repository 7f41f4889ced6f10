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
  test('leaves the text between tags out, and reads the code in its braces', () => {
    const source = [
      "const page = (<ul class='a {b' {...more}>",
      '  {list.map((x) => { return <li key={x} hidden>don\'t // go to http://x `y {f("z")}</li> })}',
      "  {/* it's */} <br/> a > b's <Some.Part of={<i>/'</i>} /> {`t §{1 / 2} `}",
      '  <></> no } brace /* here',
      '</ul>)',
      "const after = 'read' // comment",
    ].join('\n')
    const tokens = tokenizeCode(dollars(source), true)
    const texts = tokens.map(({ text }) => text)
    for (const word of ["don't", 'go', 'http', 'no', 'here', 'y']) assert.ok(!texts.includes(word), word)
    for (const word of ["'a {b'", 'more', 'list', 'f', '"z"', 'Some.Part', 'of', 'after', "'read'"])
      assert.ok(texts.includes(word), word)
    const count = (text: string) => texts.filter((other) => other === text).length
    assert.equal(count('{'), count('}'))
    assert.equal(tokens.find(({ text }) => text === 'after')?.line, 6)
    assert.equal(tokens.find(({ text }) => text === 'f')?.line, 2)
  })
  test('reads on after an element, and takes no comparison and no type argument for one', () => {
    const source =
      'const a = <p>it\'s</p>\nif (a < b && c<d>(e) / 2 / "f") return cond ? <a/> : <b>"</b>\nlet g: X<Y> = h'
    const texts = tokenizeCode(source, true).map(({ text }) => text)
    assert.deepEqual(texts.slice(texts.indexOf('if')), [
      ...['if', '(', 'a', '<', 'b', '&', '&', 'c', '<', 'd', '>', '(', 'e', ')', '/', '2', '/', '"f"', ')'],
      ...['return', 'cond', '?', '<', 'a', '/>', ':', '<', 'b', '>', '</b>'],
      ...['let', 'g', ':', 'X', '<', 'Y', '>', '=', 'h'],
    ])
    assert.ok(!tokenizeCode('const f = <T>(x: T) => x\nconst g = "x"').some(({ text }) => text.includes('\n')))
  })
  test('comes to an end whatever JSX is left open', () => {
    for (const source of ['(<', '(<a', '(<a b={', '(<a>', '(<a>{', '(<a>{b', '(<a></', '(<a b="', '(<a><', '(<>'])
      assert.ok(tokenize(source, true).length > 0, source)
  })
  test('numbers lines from 1, across comments, templates and escaped line ends', () => {
    const lines = tokenizeCode(dollars("/*\n*/ a `\n§{b}\n` 'x\\\ny' c")).map(
      ({ text, line }) => `${text.trim()}:${line}`,
    )
    const expected = dollars("a:2|`:2|§{:3|b:3|}§:3|`:3|'x\\\ny':4|c:5")
    assert.deepEqual(lines, expected.split('|'))
  })
})
