import { writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { parseArgs } from 'node:util'
import type { MeasurePart, Row } from './bench/row.ts'

/**
 * `npm run bench -- [--only a,c] [--quick] [--huge] [--json FILE] [--folder DIR]`: what Patchcord costs, as ratios that are each
 * measured within one run, in turns. A table, and the same as JSON in FILE. Measure on a machine that does nothing else.
 */

/** In the order of the table. */
const PARTS: Record<string, () => Promise<{ measure: MeasurePart }>> = {
  f: () => import('./bench/sizes.ts'),
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: Object.keys(PARTS).join(',') },
      quick: { type: 'boolean', default: false },
      huge: { type: 'boolean', default: false },
      json: { type: 'string' },
      folder: { type: 'string', default: tmpdir() },
    },
  })
  const rows: Row[] = []
  for (const key of values.only.split(',')) {
    const part = PARTS[key]
    if (!part) throw new Error(`--only takes ${Object.keys(PARTS).join(', ')}`)
    const log = (line: string) => process.stderr.write(`${key}: ${line}\n`)
    const { measure } = await part()
    rows.push(...(await measure({ folder: values.folder, isQuick: values.quick, isHuge: values.huge, log })))
  }
  const about = `${new Date().toISOString()}, Node ${process.version}, ${availableParallelism()} cores, ${process.platform} ${process.arch}`
  process.stdout.write(`${[about, '', ...formatTable(rows)].join('\n')}\n`)
  if (values.json) await writeFile(values.json, `${JSON.stringify({ about, rows }, null, 2)}\n`)
}

function formatTable(rows: Row[]): string[] {
  const line = (cells: string[]) => `| ${cells.join(' | ')} |`
  return [
    line(['', 'what', 'measured', 'against', 'ratio', 'target']),
    line(['---', '---', '---', '---', '---', '---']),
    ...rows.map(({ part, what, measured, against, ratio, target, isMet }) =>
      line([
        part,
        what,
        measured,
        against,
        ratio?.toFixed(2) ?? '',
        target === null ? '' : `${target}: ${isMet ? 'met' : 'missed'}`,
      ]),
    ),
  ]
}

await main()
