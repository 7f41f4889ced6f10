import type { Row } from './row.ts'

const TITLES = ['', 'what', 'measured', 'against', 'ratio', 'target']

/** Markdown whose columns are as wide as their longest cell, so that it can be read in a terminal, too. */
export function formatTable(rows: Row[]): string[] {
  const cells = [TITLES, ...rows.map(formatRow)]
  const widths = TITLES.map((_, column) => Math.max(3, ...cells.map((row) => [...(row[column] ?? '')].length)))
  const [head = '', ...lines] = cells.map(
    (row) => `| ${row.map((cell, column) => pad(cell, widths[column])).join(' | ')} |`,
  )
  return [head, `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...lines]
}

function formatRow({ part, what, measured, against, ratio, target, isMet }: Row): string[] {
  const verdict = target === null ? '' : `${target}: ${isMet ? 'met' : 'MISSED'}`
  return [part, what, measured, against, ratio?.toFixed(2) ?? '', verdict]
}

function pad(cell: string, width = 0): string {
  return cell + ' '.repeat(Math.max(0, width - [...cell].length))
}
