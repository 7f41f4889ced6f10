import { CommandError } from './errors.ts'
import { decode, hashOf } from './files.ts'
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
 * part. null: no file. Throws where a file that was edited cannot be read any more.
 */
export function undoEdit(edit: Edit, current: Buffer | null, before: Buffer | null): Buffer | null {
  if (current === null) return null
  if (hashOf(current) === edit.after && (edit.isNew || before !== null)) return edit.isNew ? null : before
  const { file, isNew } = edit
  return guard(file, () => {
    const text = decode(file, current)
    const rest = removeOurs(edit, text, before)
    if (rest === text) return current
    return isNew && isBlank(edit, rest) ? null : Buffer.from(rest, 'utf8')
  })
}

const OURS = { entry: 'our entry', ignore: 'our line', rules: 'our rules' }

/** What undoing an edit of a file that holds `current` does, for people. Throws as undoEdit. */
export function describeUndo(edit: Edit, current: Buffer | null): string {
  const { kind, file, isNew, isReplacing } = edit
  if (current === null) return `${file} was gone already`
  if (hashOf(current) === edit.after) return `${isNew ? 'removed' : 'put back'} ${file}`
  // The bytes of before say how much comes back, not whether anything of ours is there.
  const rest = undoEdit(edit, current, null)
  if (rest === current) return `left ${file} alone: nothing of ours is in it any more`
  if (rest === null) return `removed ${file}, in which nothing else was left`
  const done = isReplacing ? 'put the entry of before back into' : `took ${OURS[kind]} out of`
  return `${done} ${file}, which was edited since`
}

function removeOurs({ kind, file, inserted, isReplacing, items }: Edit, text: string, before: Buffer | null): string {
  if (kind === 'ignore') return removeLine(text, inserted ?? '')
  const rest = inserted === null ? null : cutOut(text, inserted)
  if (rest !== null) return rest
  if (kind === 'rules') return removeEmpty(removeItems(text, RULES_PATH, items), RULES_PATH)
  const entry = readValue(text, ENTRY_PATH) as Partial<Entry> | undefined
  // An entry that names another server by now is somebody else's.
  if (entry?.url !== items[0]) return text
  const replaced = isReplacing && before !== null ? readSource(decode(file, before), ENTRY_PATH) : null
  return replaced === null
    ? removeEmpty(removeProperty(text, ENTRY_PATH), ENTRY_PATH)
    : replaceSource(text, ENTRY_PATH, replaced)
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

function removeLine(text: string, inserted: string): string {
  if (text.endsWith(inserted)) return text.slice(0, -inserted.length)
  return text.replace(/^\.mcp\.json\r?\n/m, '')
}

/** What held nothing but our part is taken out with it. */
function removeEmpty(text: string, [outer = '', inner = '']: readonly string[]): string {
  const isEmpty = (value: unknown) => typeof value === 'object' && value !== null && Object.keys(value).length === 0
  const trimmed = isEmpty(readValue(text, [outer, inner])) ? removeProperty(text, [outer, inner]) : text
  return isEmpty(readValue(trimmed, [outer])) ? removeProperty(trimmed, [outer]) : trimmed
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
