import { CommandError } from './errors.ts'
import { decode, hashOf, isSame } from './files.ts'
import {
  appendItems,
  describeWithout,
  formatAt,
  insertProperty,
  JsoncError,
  readSource,
  readValue,
  removeItems,
  removeProperty,
  replaceSource,
} from './jsonc.ts'

export const ENTRY_PATH = ['mcpServers', 'patchcord']
const RULES_PATH = ['permissions', 'allow']
const IGNORED = '.mcp.json'
const SECRET_PATH = [...ENTRY_PATH, 'headers', 'Authorization']
/** In the place of the secret; no JSON holds this character. */
const SECRET = '\u0000'

/** The server entry of Claude Code's .mcp.json. */
export interface Entry {
  type: 'http'
  url: string
  headers: { Authorization: string }
}

/** What was done to one file: enough to undo it byte by byte, or our part of it where somebody else has edited since. */
export interface Edit {
  kind: 'entry' | 'ignore' | 'rules'
  file: string
  /** There was no file before. */
  isNew: boolean
  /** SHA-256 of what we wrote. */
  after: string
  /** What we put in, in one piece, without the secret in it; null where it took the place of something else. */
  inserted: string | null
  /** Ours took the place of another value, which the bytes of before hold. */
  isReplacing: boolean
  /** Rules that we added, or the address that our entry names. */
  items: string[]
}

export interface Planned {
  edit: Edit
  before: Buffer | null
  next: Buffer
}

/** The server entry in a text of .mcp.json; null where there is none. Throws where the text cannot be edited. */
export function readEntry(file: string, bytes: Buffer | null): unknown {
  return guard(file, () => (bytes === null ? null : (readValue(decode(file, bytes), ENTRY_PATH) ?? null)))
}

/** .mcp.json with our entry, in the place of another one of the same name where there is one. */
export function planEntry(file: string, before: Buffer | null, entry: Entry): Planned {
  return guard(file, () => {
    const text = before === null ? '' : decode(file, before)
    const replaced = readSource(text, ENTRY_PATH)
    const { text: next, inserted } =
      replaced === null
        ? insertProperty(text, ENTRY_PATH, entry)
        : { text: replaceSource(text, ENTRY_PATH, formatAt(text, ENTRY_PATH, entry)), inserted: null }
    const isOurs = JSON.stringify(readValue(next, ENTRY_PATH)) === JSON.stringify(entry)
    if (!isOurs || describeWithout(next, ENTRY_PATH) !== describeWithout(text, ENTRY_PATH)) {
      throw new JsoncError('could not be edited without touching something else')
    }
    const secret = readSource(next, SECRET_PATH) ?? ''
    const masked = inserted?.replace(secret, () => SECRET) ?? null
    const edit: Omit<Edit, 'isNew' | 'after'> = {
      kind: 'entry',
      file,
      inserted: masked,
      isReplacing: replaced !== null,
      items: [entry.url],
    }
    return plan(edit, before, next)
  })
}

/** Claude Code's settings with our permission rules; null where they are all there. */
export function planRules(file: string, before: Buffer | null, rules: readonly string[]): Planned | null {
  return guard(file, () => {
    const text = before === null ? '' : decode(file, before)
    const there = readValue(text, RULES_PATH)
    const items = rules.filter((rule) => !Array.isArray(there) || !there.includes(rule))
    if (items.length === 0) return null
    const { text: next, inserted } = appendItems(text, RULES_PATH, items)
    if (describeWithout(next, RULES_PATH) !== describeWithout(text, RULES_PATH)) {
      throw new JsoncError('could not be edited without touching something else')
    }
    return plan({ kind: 'rules', file, inserted, isReplacing: false, items }, before, next)
  })
}

/** .gitignore with a line for .mcp.json. */
export function planIgnore(file: string, before: Buffer | null): Planned {
  const text = before === null ? '' : decode(file, before)
  const eol = /\r?\n/.exec(text)?.[0] ?? '\n'
  const inserted = `${text === '' || text.endsWith('\n') ? '' : eol}${IGNORED}${eol}`
  return plan({ kind: 'ignore', file, inserted, isReplacing: false, items: [] }, before, text + inserted)
}

function plan(edit: Omit<Edit, 'isNew' | 'after'>, before: Buffer | null, text: string): Planned {
  const next = Buffer.from(text, 'utf8')
  return { edit: { ...edit, isNew: before === null, after: hashOf(next) }, before, next }
}

/**
 * The bytes without our edit: the ones from before where nobody has touched the file since, else what is there without our
 * part, and `current` itself where none of it is. null: no file. Throws where a file that was edited cannot be read any more.
 */
export function undoEdit(edit: Edit, current: Buffer | null, before: Buffer | null): Buffer | null {
  if (current === null) return null
  if (hashOf(current) === edit.after && (edit.isNew || before !== null)) return edit.isNew ? null : before
  // Somebody has put the file of before back, as git does, or we were killed before it was written.
  if (isSame(current, before)) return current
  const { file, isNew } = edit
  return guard(file, () => {
    const text = decode(file, current)
    const rest = removeOurs(edit, text, before === null ? null : decode(file, before))
    if (rest === text) return current
    return isNew && isBlank(edit, rest) ? null : Buffer.from(rest, 'utf8')
  })
}

const OURS = { entry: 'our entry', ignore: 'our line', rules: 'our rules' }

/** What undoing an edit of a file that holds `current` does, for people. Throws as undoEdit. */
export function describeUndo(edit: Edit, current: Buffer | null, before: Buffer | null): string {
  const { kind, file, isNew, isReplacing } = edit
  if (current === null) return `${file} was gone already`
  if (hashOf(current) === edit.after) return `${isNew ? 'removed' : 'put back'} ${file}`
  const rest = undoEdit(edit, current, before)
  if (rest === current) return `left ${file} alone: nothing of ours is in it any more`
  if (rest === null) return `removed ${file}, in which nothing else was left`
  const done = isReplacing ? 'put the entry of before back into' : `took ${OURS[kind]} out of`
  return `${done} ${file}, which was edited since`
}

function removeOurs(edit: Edit, text: string, before: string | null): string {
  const { kind, inserted, isReplacing, items } = edit
  if (kind === 'ignore') return removeLine(text, inserted ?? '', before)
  const cut = inserted === null ? null : cutOut(text, inserted)
  if (cut !== null && isOursOnly(edit, text, cut)) return cut
  if (kind === 'rules') {
    const rest = removeItems(text, RULES_PATH, items)
    return rest === text ? text : removeEmpty(rest, RULES_PATH, before)
  }
  const entry = readValue(text, ENTRY_PATH) as Partial<Entry> | undefined
  // An entry that names another server by now is somebody else's.
  if (entry?.url !== items[0]) return text
  const replaced = isReplacing && before !== null ? readSource(before, ENTRY_PATH) : null
  return replaced === null
    ? removeEmpty(removeProperty(text, ENTRY_PATH), ENTRY_PATH, before)
    : replaceSource(text, ENTRY_PATH, replaced)
}

/** The same words may stand elsewhere by now, or in the middle of what somebody else has written. */
function isOursOnly({ kind, items }: Edit, text: string, rest: string): boolean {
  const path = kind === 'rules' ? RULES_PATH : ENTRY_PATH
  const whole = orNull(() => ({ value: readValue(text, path), described: describeWithout(text, path) }))
  // Nobody can say more of a text that is no JSON. A rule is too short for that; an entry is not.
  if (whole === null) return kind === 'entry'
  if (orNull(() => describeWithout(rest, path)) !== whole.described) return false
  const left = readValue(rest, path)
  if (kind === 'entry') return left === undefined
  const expected = [whole.value].flat().filter((rule) => !items.includes(rule as string))
  return JSON.stringify(left ?? []) === JSON.stringify(expected)
}

function orNull<T>(work: () => T): T | null {
  try {
    return work()
  } catch (error) {
    if (error instanceof JsoncError) return null
    throw error
  }
}

/** The text without what we put in, whatever the secret in it is by now; null where it is not there exactly once. */
function cutOut(text: string, inserted: string): string | null {
  const [head = '', tail = null] = inserted.split(SECRET)
  const secret = /"(?:[^"\\\n]|\\.)*"/y
  const rests: string[] = []
  for (let start = text.indexOf(head); start !== -1; start = text.indexOf(head, start + 1)) {
    let end = start + head.length
    if (tail !== null) {
      secret.lastIndex = end
      end = secret.test(text) && text.startsWith(tail, secret.lastIndex) ? secret.lastIndex + tail.length : -1
    }
    if (end !== -1) rests.push(text.slice(0, start) + text.slice(end))
  }
  return rests.length === 1 ? (rests[0] ?? null) : null
}

/** The last line that is ours, unless it is one of those that stood there before. */
function removeLine(text: string, inserted: string, before: string | null): string {
  const lines = toLines(text)
  const known = toLines(before ?? '')
  if (lines.filter(isOurLine).length <= known.filter(isOurLine).length) return text
  const index = lines.findLastIndex(isOurLine)
  const head = lines.slice(0, index)
  const [lead = ''] = /^\r?\n/.exec(inserted) ?? []
  // The line before ours had no end of its own.
  if (lead !== '' && index === lines.length - 1 && (before === null || head.at(-1) === `${known.at(-1)}${lead}`)) {
    return head.join('').slice(0, -lead.length)
  }
  return [...head, ...lines.slice(index + 1)].join('')
}

/** As git sees them, each with its end. */
function toLines(text: string): string[] {
  return text.split(/(?<=\n)/)
}

function isOurLine(line: string): boolean {
  return line.replace(/\r?\n$/, '') === IGNORED
}

/** What held nothing but our part is taken out with it, unless it was there before. */
function removeEmpty(text: string, [outer = '', inner = '']: readonly string[], before: string | null): string {
  const isOursAndEmpty = (path: readonly string[]) => {
    const value = readValue(text, path)
    const isEmpty = typeof value === 'object' && value !== null && Object.keys(value).length === 0
    return isEmpty && (before === null || readValue(before, path) === undefined)
  }
  if (isOursAndEmpty([outer])) return removeProperty(text, [outer])
  if (!isOursAndEmpty([outer, inner])) return text
  return removeEmpty(removeProperty(text, [outer, inner]), [outer, inner], before)
}

function isBlank({ kind }: Edit, text: string): boolean {
  return text.trim() === '' || (kind !== 'ignore' && /^\s*\{\s*\}\s*$/.test(text))
}

function guard<T>(file: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof JsoncError)) throw error
    throw new CommandError('unreadable', `${file} ${error.message}. It was left alone.`, {
      hint: 'Correct it, then try again.',
      cause: error,
    })
  }
}
