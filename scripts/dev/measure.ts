import { type Token, tokenizeCode } from '../../test/tidy/lexer.ts'
import { isJsx } from '../../test/tidy/tree.ts'

export interface Sized {
  /** `file` or `file:line name`. */
  name: string
  lines: number
}

export interface Distribution {
  count: number
  median: number
  p90: number
  max: number
  largest: string
}

/** What looks like `name(…) {` and is no function. */
const CONTROL = new Set(['if', 'for', 'while', 'switch', 'catch', 'with', 'await', 'return'])
const BEFORE_METHOD = new Set(
  ['{', '}', ';', ',', '*', 'function', 'async', 'static', 'get', 'set'].concat([
    'private',
    'protected',
    'public',
    'override',
  ]),
)
/** A type beside a variable's name is no longer than this. */
const TYPE_TOKENS_MAX = 30
/** After these a type goes on: a brace belongs to it, and so does a new line. */
const INSIDE_TYPE = new Set([':', '|', '&', '=>', '<', ',', 'is', 'extends', 'keyof', 'readonly'])

/**
 * Every function with a block body, from the line of its name or first bracket to that of its closing brace. Found by tokens:
 * a brace after `=>`, or after `name(…)` and a return type. Arrow functions whose body is an expression are left out; an inner
 * function counts in its outer one too.
 */
export function measureFunctions(file: string, source: string): Sized[] {
  const tokens = tokenizeCode(source, isJsx(file))
  const pairs = pairBrackets(tokens)
  return tokens.flatMap((token, index) => {
    const found = token.text === '=>' ? findArrow(tokens, pairs, index) : findMethod(tokens, pairs, index)
    const end = found ? pairs.get(found.body) : undefined
    const from = tokens[found?.start ?? -1]?.line
    if (!found || end === undefined || from === undefined) return []
    return [{ name: `${file}:${from} ${found.name}`, lines: (tokens[end]?.line ?? from) - from + 1 }]
  })
}

/** Lines that hold something, as Biome counts them for its limits. */
export function measureFile(file: string, source: string): Sized {
  return { name: file, lines: source.split('\n').filter((line) => line.trim() !== '').length }
}

/** Nearest-rank percentiles; null of nothing. */
export function distribute(sizes: Sized[]): Distribution | null {
  const sorted = [...sizes].sort((a, b) => a.lines - b.lines)
  const rank = (share: number) => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)]
  const [median, p90, largest] = [rank(0.5), rank(0.9), rank(1)]
  if (!median || !p90 || !largest) return null
  return { count: sorted.length, median: median.lines, p90: p90.lines, max: largest.lines, largest: largest.name }
}

interface Found {
  /** Indexes of tokens: where it starts, and the brace that opens its body. */
  start: number
  body: number
  name: string
}

function findArrow(tokens: Token[], pairs: Map<number, number>, arrow: number): Found | null {
  if (tokens[arrow + 1]?.text !== '{') return null
  const close = tokens.findLastIndex((token, index) => index < arrow && token.text === ')')
  const start = pairs.get(close) ?? arrow
  return { start, body: arrow + 1, name: nameArrow(tokens, skipGenerics(tokens, start - 1)) }
}

/** `const name = (`, `name: (`, and for a callback the call's first string or else its name. */
function nameArrow(tokens: Token[], last: number): string {
  const before = tokens[last]?.text === 'async' ? last - 1 : last
  const sign = tokens[before]?.text
  if (sign === ':') return tokens[before - 1]?.text ?? ''
  if (sign === '=') return nameVariable(tokens, before)
  const open = findOpenCall(tokens, before)
  const first = tokens[open + 1]
  return first?.kind === 'string' ? first.text.slice(1, -1) : `${tokens[open - 1]?.text ?? ''}(…)`
}

/** The name in `const name: Type =`, or in `name =`. */
function nameVariable(tokens: Token[], equals: number): string {
  const keyword = tokens.findLastIndex(({ text }, index) => index < equals && /^(?:const|let)$/.test(text))
  const isTyped = tokens[keyword + 2]?.text === ':' && equals - keyword <= TYPE_TOKENS_MAX
  return tokens[isTyped ? keyword + 1 : equals - 1]?.text ?? ''
}

/** The bracket that is still open at a token. */
function findOpenCall(tokens: Token[], from: number): number {
  let depth = 0
  for (let index = from; index >= 0; index--) {
    const text = tokens[index]?.text ?? ''
    if (depth === 0 && text === '(') return index
    if (')]}'.includes(text)) depth += 1
    if ('([{'.includes(text)) depth -= 1
  }
  return 0
}

function findMethod(tokens: Token[], pairs: Map<number, number>, close: number): Found | null {
  const open = tokens[close]?.text === ')' ? pairs.get(close) : undefined
  if (open === undefined) return null
  const start = skipGenerics(tokens, open - 1)
  const callee = tokens[start]
  if (callee?.kind !== 'word' || CONTROL.has(callee.text)) return null
  const next = tokens[close + 1]?.text
  const isTyped = next === ':' && isDeclared(tokens, start)
  const body = next === '{' ? close + 1 : isTyped ? skipType(tokens, pairs, close + 2) : null
  return body === null ? null : { start, body, name: callee.text }
}

/** Tells `name(…): Type {` from the middle of `a ? name(…) : { … }`. */
function isDeclared(tokens: Token[], name: number): boolean {
  const before = tokens[name - 1]
  return before === undefined || BEFORE_METHOD.has(before.text) || before.line < (tokens[name]?.line ?? 0)
}

/** The brace after a type, or null where none follows, as in an interface. */
function skipType(tokens: Token[], pairs: Map<number, number>, start: number): number | null {
  for (let index = start; index < tokens.length; index++) {
    const [before, token] = [tokens[index - 1], tokens[index]]
    if (!before || !token || ';=)}]'.includes(token.text)) return null
    const goesOn = INSIDE_TYPE.has(before.text)
    if (token.text === '{' && !goesOn) return index
    if (token.line > before.line && !goesOn && !'|&'.includes(token.text)) return null
    if ('{(['.includes(token.text)) index = pairs.get(index) ?? index
  }
  return null
}

/** From the last token of `name<T>` to `name`. */
function skipGenerics(tokens: Token[], last: number): number {
  if (tokens[last]?.text !== '>') return last
  let depth = 0
  for (let index = last; index >= 0; index--) {
    if (tokens[index]?.text === '>') depth += 1
    if (tokens[index]?.text === '<') depth -= 1
    if (depth === 0) return index - 1
  }
  return last
}

/** Each bracket's partner, both ways. */
function pairBrackets(tokens: Token[]): Map<number, number> {
  const pairs = new Map<number, number>()
  const open: number[] = []
  for (const [index, { kind, text }] of tokens.entries()) {
    if (kind !== 'punctuation') continue
    if (['(', '[', '{', '${'].includes(text)) open.push(index)
    if (![')', ']', '}', '}$'].includes(text)) continue
    const partner = open.pop() ?? index
    pairs.set(index, partner).set(partner, index)
  }
  return pairs
}
