import type { ChangeFilter, FilterCheck } from '../domain/realtime.ts'
import { PUBLISHED_TABLE } from '../domain/realtime.ts'

/** What one entry of `postgres_changes` in a join comes to. Ids are ours to choose; the reply and each change name them. */
export interface Binding {
  id: number
  event: string
  schema: string
  table: string
  filters: ChangeFilter[]
  /** null: every column. */
  select: string[] | null
  /** The value of each filter as Supabase Realtime prints it. */
  printed: string[]
}

type Params = Record<string, unknown>

const WIDTH = 80
/** Of all bindings of a channel. Nobody needs as many, and each is checked by the database. */
const FILTERS_MAX = 100
const OPERATORS = new Set(['eq', 'in'])
/** Events that the published table, which is insert-only, can have. */
const EVENTS = new Set(['INSERT', '*'])
const CONDITIONS: Record<string, string> = {
  '22007': 'invalid_datetime_format',
  '22008': 'datetime_field_overflow',
  '22P02': 'invalid_text_representation',
  '42704': 'undefined_object',
  P0001: 'raise_exception',
}

/** The bindings as a join's reply echoes them: `id`, then what the client gave, by key. */
export function echoBindings(params: Params[]): Params[] {
  return params.map((each) => {
    const { id: _, ...given } = each
    return { id: hash27(JSON.stringify(sortKeys(each))), ...sortKeys(given) }
  })
}

/** The bindings, or the sentence of the first one that cannot be read: one bad binding fails all of a channel. */
export function parseBindings(params: Params[]): Binding[] | string {
  const bindings: Binding[] = []
  for (const [index, echo] of echoBindings(params).entries()) {
    const binding = parseBinding(params[index] as Params, echo.id as number)
    if (typeof binding === 'string') return binding
    bindings.push(binding)
  }
  const count = bindings.reduce((sum, { filters }) => sum + filters.length, 0)
  return count > FILTERS_MAX ? `too many filters. Maximum ${FILTERS_MAX}` : bindings
}

/** The sentence for the first binding that the database does not have; null: all are good. */
export function explainRefusal(bindings: Binding[], check: FilterCheck): string | null {
  const refusedAt = 'filters' in check ? Number.POSITIVE_INFINITY : indexOfBinding(bindings, check.index)
  const unpublishedAt = bindings.findIndex((binding) => !isPublished(binding))
  const start = 'Unable to subscribe to changes with given parameters.'
  if (unpublishedAt >= 0 && unpublishedAt <= refusedAt) {
    const parameters = describe(bindings[unpublishedAt] as Binding)
    return `${start} Please check Realtime is enabled for the given connect parameters: ${parameters}`
  }
  if ('filters' in check) return null
  const condition = CONDITIONS[check.state] ?? 'data_exception'
  return (
    `${start} An exception happened so please check your connect parameters: ${describe(bindings[refusedAt] as Binding)}. ` +
    `Exception: ERROR ${check.state} (${condition}) ${check.message}`
  )
}

/** Which binding the filter of this index, counted over all of them, belongs to; the first where it is none's fault. */
function indexOfBinding(bindings: Binding[], filterIndex: number): number {
  let count = 0
  return Math.max(
    0,
    bindings.findIndex(({ filters }) => {
      count += filters.length
      return filterIndex < count
    }),
  )
}

function isPublished({ event, schema, table }: Binding): boolean {
  const isIn = (given: string, name: string) => given === name || given === '*'
  return EVENTS.has(event) && isIn(schema, PUBLISHED_TABLE.schema) && isIn(table, PUBLISHED_TABLE.name)
}

function parseBinding(params: Params, id: number): Binding | string {
  const { event = '*', schema, table, filter, select } = params
  if (typeof schema !== 'string' && typeof table !== 'string') {
    return `No subscription params provided. Please provide at least a \`schema\` or \`table\` to subscribe to: ${inspectMap(params)}`
  }
  const filters = typeof filter === 'string' && filter !== '' ? parseFilters(filter) : []
  if (typeof filters === 'string') return filters
  return {
    id,
    event: String(event),
    schema: typeof schema === 'string' ? schema : 'public',
    table: typeof table === 'string' ? table : '*',
    filters: filters.map(({ filter }) => filter),
    select: Array.isArray(select) ? select.filter((column) => typeof column === 'string') : null,
    printed: filters.map(({ printed }) => printed),
  }
}

/** `column=op.value`, several with commas between them. */
function parseFilters(text: string): { filter: ChangeFilter; printed: string }[] | string {
  const filters: { filter: ChangeFilter; printed: string }[] = []
  for (const part of splitOutside(text)) {
    if (!isText(part)) return cannotParse([part])
    const [column = '', rest] = cut(part, '=')
    if (rest === undefined) return cannotParse([part])
    const [op = '', value] = cut(rest, '.')
    if (value === undefined) return cannotParse([rest])
    if (!OPERATORS.has(op)) return cannotParse([op, value])
    if (op === 'eq') {
      filters.push({ filter: { column, op, values: [unquote(value)] }, printed: value })
      continue
    }
    const list = /^\((.*)\)$/s.exec(value)?.[1]
    if (list === undefined) return cannotParse([op, value])
    const values = list === '' ? [] : splitOutside(list).map(unquote)
    filters.push({ filter: { column, op: 'in', values }, printed: `{${list}}` })
  }
  return filters
}

function cannotParse(parts: string[]): string {
  return `Error parsing \`filter\` params: [${parts.map(inspect).join(', ')}]`
}

/** Whether Postgres can hold it: no U+0000, no half of a surrogate pair. */
function isText(text: string): boolean {
  return !text.includes('\0') && !/\p{Surrogate}/u.test(text)
}

/** At its commas, but for those in quotes or parentheses; what is never closed reaches to the end. Empty parts are none. */
function splitOutside(text: string): string[] {
  const parts: string[] = []
  let start = 0
  let isQuoted = false
  let isInside = false
  for (let index = 0; index <= text.length; index++) {
    const character = text[index]
    if (index === text.length || (character === ',' && !isQuoted && !isInside)) {
      if (index > start) parts.push(text.slice(start, index))
      start = index + 1
    } else if (character === '\\' && isQuoted) index++
    else if (character === '"') isQuoted = !isQuoted
    else if (!isQuoted && (character === '(' || character === ')')) isInside = character === '('
  }
  return parts
}

function unquote(value: string): string {
  return /^".*"$/s.test(value) ? value.slice(1, -1).replace(/\\(.)/gs, '$1') : value
}

function cut(text: string, separator: string): [string, string | undefined] {
  const at = text.indexOf(separator)
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)]
}

/** As the original's runtime, Elixir, prints these parameters: clients show the text to people. */
function describe({ event, schema, table, filters, select, printed }: Binding): string {
  const tuples = filters.map(({ column, op }, index) => [column, op, printed[index] ?? ''].map(inspect).concat('false'))
  const flat = `[${tuples.map((tuple) => `{${tuple.join(', ')}}`).join(', ')}]`
  const list = flat.length <= WIDTH ? flat : `[\n  ${tuples.map(fillTuple).join(',\n  ')}\n]`
  const columns = select === null ? 'nil' : `[${select.map(inspect).join(', ')}]`
  return `[event: ${event}, schema: ${schema}, table: ${table}, filters: ${list}, select: ${columns}]`
}

/** A tuple indented by two: each element on the line of the one before where it fits. */
function fillTuple(elements: string[]): string {
  let text = '{'
  let column = 3
  for (const [index, element] of elements.entries()) {
    const piece = element + (index === elements.length - 1 ? '}' : ',')
    const isFirst = index === 0
    const fits = column + (isFirst ? 0 : 1) + piece.length <= WIDTH
    text += isFirst ? piece : fits ? ` ${piece}` : `\n   ${piece}`
    column = isFirst || fits ? column + (isFirst ? 0 : 1) + piece.length : 3 + piece.length
  }
  return text
}

function inspect(text: string): string {
  return JSON.stringify(text)
}

function inspectMap(params: Params): string {
  const members = Object.entries(sortKeys(params)).map(([key, value]) => `${inspect(key)} => ${JSON.stringify(value)}`)
  return `%{${members.join(', ')}}`
}

function sortKeys(params: Params): Params {
  return Object.fromEntries(Object.entries(params).sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** FNV-1a, cut to the 27 bits that Supabase's ids have. */
function hash27(text: string): number {
  let hash = 0x811c9dc5
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193)
  return (hash >>> 0) % 2 ** 27
}
