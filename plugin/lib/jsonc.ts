import { createScanner, getNodeValue, type Node, type ParseError, parseTree } from 'jsonc-parser'

/** JSON with comments and trailing commas, edited by span: what is not ours keeps every byte. */

const INDENT_DEFAULT = '  '
/** `SyntaxKind` is a const enum of the library's declarations, which a single file cannot import. */
const TOKEN = {
  openBrace: 1,
  closeBrace: 2,
  openBracket: 3,
  closeBracket: 4,
  comma: 5,
  lineComment: 12,
  blockComment: 13,
  lineBreak: 14,
  trivia: 15,
  end: 17,
} as const
const DEPTH_MAX = 200

type Path = readonly string[]

/** One contiguous text that an edit has put in. */
export interface Insertion {
  text: string
  inserted: string
}

/** Why a text is not JSON that can be edited; the sentence follows the file's name. */
export class JsoncError extends Error {
  override readonly name = 'JsoncError'
}

/** The root, null where the text is blank. Throws JsoncError: not JSON, not an object, or a name stands in it twice. */
function parseRoot(text: string): Node | null {
  const body = text.replace(/^\ufeff/, ' ')
  if (body.trim() === '') return null
  if (isTooDeep(body)) throw new JsoncError('is nested too deeply')
  const errors: ParseError[] = []
  const root = parseTree(body, errors, { allowTrailingComma: true })
  const [error] = errors
  if (error || root === undefined) throw new JsoncError(`is not JSON (line ${lineAt(body, error?.offset ?? 0)})`)
  if (root.type !== 'object') throw new JsoncError('is not a JSON object')
  return root
}

/** By tokens: a pattern over the text goes back to where a string began that never ends, as often as it holds a quote. */
function isTooDeep(text: string): boolean {
  const scanner = createScanner(text, true)
  let depth = 0
  for (;;) {
    const kind = scanner.scan() as number
    if (kind === TOKEN.end) return false
    if (kind === TOKEN.openBrace || kind === TOKEN.openBracket) depth++
    else if (kind === TOKEN.closeBrace || kind === TOKEN.closeBracket) depth--
    if (depth > DEPTH_MAX) return true
  }
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length
}

/** The node of a path. Throws where a name on the way stands twice: readers do not agree on which one counts. */
function find(root: Node, path: Path): Node | undefined {
  let node: Node | undefined = root
  for (const name of path) {
    const same: Node[] = (node.children ?? []).filter((child) => child.children?.[0]?.value === name)
    if (node.type !== 'object') throw new JsoncError(`has no object where ${path.join('.')} belongs`)
    if (same.length > 1) throw new JsoncError(`names ${JSON.stringify(name)} twice`)
    node = same[0]?.children?.[1]
    if (node === undefined) return undefined
  }
  return node
}

/** The value at a path, undefined where there is none. Throws JsoncError. */
export function readValue(text: string, path: Path): unknown {
  const root = parseRoot(text)
  const node = root === null ? undefined : find(root, path)
  return node === undefined ? undefined : getNodeValue(node)
}

/** The value's own text at a path, comments included; null where there is none. Throws JsoncError. */
export function readSource(text: string, path: Path): string | null {
  const root = parseRoot(text)
  const node = root === null ? undefined : find(root, path)
  return node === undefined ? null : text.slice(node.offset, node.offset + node.length)
}

/** Puts a property where none is, with the objects on the way to it. Throws JsoncError. */
export function insertProperty(text: string, path: Path, value: unknown): Insertion {
  const root = parseRoot(text)
  if (root === null) return insertDocument(text, nest(path, value))
  for (let depth = path.length - 1; depth >= 0; depth--) {
    const parent = find(root, path.slice(0, depth))
    if (parent === undefined) continue
    const name = path[depth] ?? ''
    if (parent.type !== 'object') throw new JsoncError(`has no object where ${path.join('.')} belongs`)
    if (find(parent, [name]) !== undefined) throw new JsoncError(`has ${path.join('.')} already`)
    return insertChildren(text, parent, [{ name, value: nest(path.slice(depth + 1), value) }])
  }
  throw new JsoncError('is not a JSON object')
}

/** Puts items at the end of the array at a path, and the array where there is none. Throws JsoncError. */
export function appendItems(text: string, path: Path, items: readonly unknown[]): Insertion {
  const root = parseRoot(text)
  const array = root === null ? undefined : find(root, path)
  if (array === undefined) return insertProperty(text, path, items)
  if (array.type !== 'array') throw new JsoncError(`has no list at ${path.join('.')}`)
  return insertChildren(
    text,
    array,
    items.map((value) => ({ value })),
  )
}

/** Another text in the place of a value. Throws JsoncError. */
export function replaceSource(text: string, path: Path, source: string): string {
  const root = parseRoot(text)
  const node = root === null ? undefined : find(root, path)
  if (node === undefined) throw new JsoncError(`has no ${path.join('.')}`)
  return text.slice(0, node.offset) + source + text.slice(node.offset + node.length)
}

/** A value in the layout of the place where it will stand. */
export function formatAt(text: string, path: Path, value: unknown): string {
  const root = parseRoot(text)
  const node = root === null ? undefined : find(root, path)
  if (node === undefined) return JSON.stringify(value)
  const parent = node.parent?.parent
  const isOneLine = parent === undefined || !text.slice(parent.offset, parent.offset + parent.length).includes('\n')
  return isOneLine ? JSON.stringify(value) : format(text, value, indentAt(text, node.parent?.offset ?? node.offset))
}

/** Takes out a property, one comma with it, and nothing else. The same text where there is none. Throws JsoncError. */
export function removeProperty(text: string, path: Path): string {
  const root = parseRoot(text)
  const node = root === null ? undefined : find(root, path)
  return node?.parent === undefined ? text : removeChild(text, node.parent)
}

/** Takes the items out of the array at a path, each once. Throws JsoncError. */
export function removeItems(text: string, path: Path, items: readonly unknown[]): string {
  let rest = text
  for (const item of items) {
    const root = parseRoot(rest)
    const array = root === null ? undefined : find(root, path)
    const child = array?.children?.findLast((each) => each.type === 'string' && each.value === item)
    if (child !== undefined) rest = removeChild(rest, child)
  }
  return rest
}

/** What a text says without the value at `path`: equal before and after an edit that touches nothing else. */
export function describeWithout(text: string, path: Path): string {
  const root = parseRoot(text)
  return root === null ? '{}' : describe(root, path)
}

function describe(node: Node, without: Path | null): string {
  if (without?.length === 0) return ''
  if (node.type === 'array') return `[${(node.children ?? []).map((child) => describe(child, null)).join()}]`
  if (node.type !== 'object') return JSON.stringify(node.value)
  const parts = (node.children ?? []).map((property) => {
    const name = property.children?.[0]?.value as string
    const value = property.children?.[1]
    const inner = without !== null && without[0] === name ? without.slice(1) : null
    const text = value === undefined ? '' : describe(value, inner)
    // An object that held nothing but what is left out says nothing either.
    return text === '' || (inner !== null && text === '{}') ? '' : `${JSON.stringify(name)}:${text}`
  })
  return `{${parts.filter((part) => part !== '').join()}}`
}

function nest(path: Path, value: unknown): unknown {
  return path.reduceRight((inner, name) => ({ [name]: inner }), value)
}

/** A blank text becomes a document; its byte order mark stays in front. */
function insertDocument(text: string, value: unknown): Insertion {
  const eol = eolOf(text)
  const inserted = `${JSON.stringify(value, null, INDENT_DEFAULT).replaceAll('\n', eol)}${eol}`
  const start = text.startsWith('\ufeff') ? 1 : 0
  return { text: text.slice(0, start) + inserted + text.slice(start), inserted }
}

interface Child {
  name?: string
  value: unknown
}

function insertChildren(text: string, container: Node, children: readonly Child[]): Insertion {
  const last = container.children?.at(-1)
  const source = text.slice(container.offset, container.offset + container.length)
  const eol = eolOf(text)
  if (last !== undefined && !source.includes('\n')) {
    const space = /,\s/.test(source) || /:\s/.test(source) ? ' ' : ''
    const inserted = children.map((child) => `,${space}${renderInline(child)}`).join('')
    return splice(text, last.offset + last.length, inserted)
  }
  const outer = indentAt(text, container.offset)
  const inner =
    last !== undefined && startsItsLine(text, last.offset) ? indentAt(text, last.offset) : outer + unitOf(text)
  const lines = children.map((child) => eol + inner + render(text, child, inner))
  if (last !== undefined) return splice(text, last.offset + last.length, lines.map((line) => `,${line}`).join(''))
  // Behind a comment in an empty object stands a line break already, or the comment would swallow the brace.
  const rest = source.slice(1)
  const closing = /^\s*\r?\n/.test(rest) ? '' : eol + outer
  return splice(text, container.offset + 1, lines.join(',') + closing)
}

function splice(text: string, at: number, inserted: string): Insertion {
  return { text: text.slice(0, at) + inserted + text.slice(at), inserted }
}

function renderInline({ name, value }: Child): string {
  return `${name === undefined ? '' : `${JSON.stringify(name)}: `}${JSON.stringify(value)}`
}

function render(text: string, { name, value }: Child, indent: string): string {
  return `${name === undefined ? '' : `${JSON.stringify(name)}: `}${format(text, value, indent)}`
}

function format(text: string, value: unknown, indent: string): string {
  return JSON.stringify(value, null, unitOf(text)).replaceAll('\n', eolOf(text) + indent)
}

/** With the blanks before it, unless a line comment stands there, which would swallow what comes next. */
function removeChild(text: string, child: Node): string {
  const end = child.offset + child.length
  const blanksAt = text.slice(0, child.offset).trimEnd().length
  const comma = findComma(text, end) ?? findCommaBefore(text, child)
  const cut = (start: number) => {
    const spans: [number, number][] = [
      [start, end],
      ...(comma === null ? [] : [[comma, comma + 1] as [number, number]]),
    ]
    return spans.sort((a, b) => b[0] - a[0]).reduce((rest, [from, to]) => rest.slice(0, from) + rest.slice(to), text)
  }
  const isSafe = countAll(cut(blanksAt)) === countAll(text) - countNodes(child)
  return cut(isSafe ? blanksAt : child.offset)
}

function countAll(text: string): number {
  try {
    const root = parseRoot(text)
    return root === null ? 0 : countNodes(root)
  } catch (error) {
    if (error instanceof JsoncError) return Number.NaN
    throw error
  }
}

function countNodes(node: Node): number {
  return (node.children ?? []).reduce((sum, child) => sum + countNodes(child), 1)
}

/** The comma that follows, with nothing but blanks and comments between. */
function findComma(text: string, from: number): number | null {
  const scanner = createScanner(text, false)
  scanner.setPosition(from)
  for (;;) {
    const kind = scanner.scan() as number
    if (kind === TOKEN.comma) return scanner.getTokenOffset()
    const isSkipped = [TOKEN.lineComment, TOKEN.blockComment, TOKEN.lineBreak, TOKEN.trivia].includes(kind as 12)
    if (!isSkipped) return null
  }
}

function findCommaBefore(text: string, child: Node): number | null {
  const siblings = child.parent?.children ?? []
  const previous = siblings[siblings.indexOf(child) - 1]
  return previous === undefined ? null : findComma(text, previous.offset + previous.length)
}

function eolOf(text: string): string {
  return /\r?\n/.exec(text)?.[0] ?? '\n'
}

function startsItsLine(text: string, offset: number): boolean {
  return /(?:^|\n)[ \t]*$/.test(text.slice(0, offset).replace(/^\ufeff/, ''))
}

/** The blanks before the first character of the line that holds the offset. */
function indentAt(text: string, offset: number): string {
  const line = text.slice(text.lastIndexOf('\n', offset - 1) + 1, offset).replace(/^\ufeff/, '')
  return /^[ \t]*/.exec(line)?.[0] ?? ''
}

/** One step of indentation: that of the first line that has any. */
function unitOf(text: string): string {
  return /^([ \t]+)["{[\]}]/m.exec(text)?.[1] ?? INDENT_DEFAULT
}
