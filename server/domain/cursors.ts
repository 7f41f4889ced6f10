const CURSOR =
  /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[+-](?:0\d|1[0-4]):[0-5]\d|Z))_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/

/** Where a page ended, `<time>_<id>`, as the address of the next one holds it; null for what Postgres would not take as one. */
export function parseCursor(text: string): { at: string; id: string } | null {
  const [, day = '', time = '', id = ''] = CURSOR.exec(text) ?? []
  const at = `${day}${time}`
  if (Number.isNaN(Date.parse(at)) || day.startsWith('0000')) return null
  // The 30th of February would be a day in March.
  return new Date(`${day}T00:00:00Z`).toISOString().startsWith(day) ? { at, id } : null
}
