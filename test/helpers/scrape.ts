/** A page in Prometheus' text format, sample by sample: `name{labels}` as it stands there, and its value. */
export function parseSamples(page: string): Map<string, number> {
  const lines = page.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => {
      const end = line.lastIndexOf(' ')
      return [line.slice(0, end), Number(line.slice(end + 1))]
    }),
  )
}

/** What one of two pages has more than the other, by sample; what did not change is left out. */
export function compareSamples(before: string, after: string): Record<string, number> {
  const known = parseSamples(before)
  const more = [...parseSamples(after)].map(([name, value]) => [name, value - (known.get(name) ?? 0)] as const)
  return Object.fromEntries(more.filter(([, value]) => value !== 0))
}
