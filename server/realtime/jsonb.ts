/** A value as jsonb prints it: a space after colons and commas, keys by length and then by bytes, numbers in full. */
export function jsonbText(value: unknown): string {
  if (typeof value === 'number') return numericText(value)
  if (Array.isArray(value)) return `[${value.map(jsonbText).join(', ')}]`
  if (!isObject(value)) return JSON.stringify(value)
  const members = Object.keys(value)
    .map((key) => ({ key, bytes: Buffer.from(key) }))
    .sort((a, b) => a.bytes.length - b.bytes.length || Buffer.compare(a.bytes, b.bytes))
  return `{${members.map(({ key }) => `${JSON.stringify(key)}: ${jsonbText(value[key])}`).join(', ')}}`
}

/** A number as Postgres's numeric prints what JSON.stringify writes: the same digits, never an exponent. */
function numericText(value: number): string {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(JSON.stringify(value)) ?? []
  const digits = whole + fraction
  const point = whole.length + Number(exponent)
  if (point >= digits.length) return sign + digits.padEnd(point, '0')
  if (point > 0) return `${sign}${digits.slice(0, point)}.${digits.slice(point)}`
  return `${sign}0.${'0'.repeat(-point)}${digits}`
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
