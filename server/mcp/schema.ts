import { z } from 'zod'

type JsonSchema = Record<string, unknown>

/** Every model reads the schemas of every tool: what only costs tokens there is left to the error of a wrong call. */
const SILENT = ['$schema', 'additionalProperties', 'minLength', 'maxLength', 'maxItems']

/** A longer pattern tells a model nothing that the error does not tell better. */
const PATTERN_CHARACTERS_MAX = 20

/** JSON Schema of a tool's arguments, as short as it can tell what belongs where. */
export function toInputSchema(input: z.ZodObject): JsonSchema {
  return shorten(z.toJSONSchema(input, { io: 'input' }) as JsonSchema)
}

/** JSON Schema of a tool's structured content, as `compact` leaves it. */
export function toOutputSchema(output: z.ZodObject): JsonSchema {
  const facts = loosen(z.toJSONSchema(output, { io: 'output' }) as JsonSchema)
  const properties = { summary: { type: 'string' }, ...(facts.properties as JsonSchema) }
  return { type: 'object', properties, required: ['summary'] }
}

/** What says nothing is left out: null, false, an empty list. */
export function compact(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(compact)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([key, each]) => [key, compact(each)] as const)
  return Object.fromEntries(entries.filter(([, each]) => !isEmpty(each)))
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0)
}

function shorten(schema: JsonSchema): JsonSchema {
  const entries = Object.entries(schema).filter(([key, value]) => {
    if (SILENT.includes(key) || (key === 'pattern' && String(value).length > PATTERN_CHARACTERS_MAX)) return false
    return !(typeof value === 'number' && Math.abs(value) === Number.MAX_SAFE_INTEGER)
  })
  const { properties, items, ...rest } = Object.fromEntries(entries)
  return {
    ...rest,
    ...(isSchema(properties) && { properties: mapValues(properties, (each, name) => describe(name, shorten(each))) }),
    ...(isSchema(items) && { items: describe('', shorten(items)) }),
  }
}

/** A description that only repeats the name says nothing. */
function describe(name: string, schema: JsonSchema): JsonSchema {
  const { description, ...rest } = schema
  const isRepeated = name === '' || name.replaceAll('_', ' ') === String(description).toLowerCase()
  return isRepeated || description === undefined ? rest : schema
}

/**
 * What an answer is, without what it may outgrow: a client that has kept an older schema must not refuse a newer answer.
 * Only the types of properties are left.
 */
function loosen(schema: JsonSchema): JsonSchema {
  const { type, properties, items } = withoutNull(schema)
  return {
    type,
    ...(isSchema(properties) && { properties: mapValues(properties, loosen) }),
    ...(isSchema(items) && { items: loosen(items) }),
  }
}

/** `{type: [X, null]}` and `{anyOf: [X, {type: null}]}` as X: null is never sent. */
function withoutNull(schema: JsonSchema): JsonSchema {
  if (Array.isArray(schema.type)) return { ...schema, type: schema.type.find((type) => type !== 'null') }
  const branches = (schema.anyOf ?? []) as JsonSchema[]
  return branches.find(({ type }) => type !== 'null') ?? schema
}

function mapValues(object: JsonSchema, change: (value: JsonSchema, key: string) => unknown): JsonSchema {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value as JsonSchema, key)]))
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
