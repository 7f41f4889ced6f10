/** The one of `known` that somebody most likely meant, null when none is near. */
export function findNearest(wanted: string, known: readonly string[]): string | null {
  const ranked = known
    .map((name) => ({ name, distance: name.startsWith(wanted) ? 1 : editDistance(wanted, name) }))
    .sort((a, b) => a.distance - b.distance)
  const [best] = ranked
  return best && best.distance <= Math.max(1, Math.floor(wanted.length / 2)) ? best.name : null
}

/** Levenshtein's distance, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1]
    for (let j = 1; j < row.length; j++) {
      const substitution = (row[j - 1] ?? 0) + (letter === b[j - 1] ? 0 : 1)
      next.push(Math.min(substitution, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row.at(-1) ?? 0
}
