import { fileURLToPath } from 'node:url'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { INSTRUCTIONS } from '../../server/mcp/instructions.ts'
import { toolDefinitions } from '../../server/mcp/server.ts'
import { isCode, readTree, type Tree } from '../../test/tidy/tree.ts'
import { distribute, measureFile, measureFunctions, type Sized } from './measure.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const AREAS: Record<string, RegExp> = {
  'server/': /^server\//,
  'scripts/': /^scripts\/(?!dev\/)/,
  'plugin/': /^plugin\//,
  'all that users run': /^(?:server|plugin|scripts\/(?!dev\/))/,
  'scripts/dev/': /^scripts\/dev\//,
  'test/': /^test\//,
}

/** `npm run sizes`: how large functions and files are, and what the MCP tools cost a model to be shown. */
async function printSizes(): Promise<void> {
  const tree = await readTree(ROOT)
  printTable('Functions with a body, lines', tree, measureFunctions)
  printTable('Files, lines that are not blank', tree, (file, source) => [measureFile(file, source)])
  printTokens()
}

/** What a model is shown of a tool is its name, description and input schema; few clients show output schemas. */
function printTokens(): void {
  const shown = toolDefinitions.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }))
  console.log(`MCP tools, o200k tokens of name, description and input schema; output schema`)
  for (const [index, tool] of toolDefinitions.entries()) {
    console.log(`  ${tool.name.padEnd(24)}${countCells([shown[index], tool.outputSchema])}`)
  }
  console.log(`  ${'all'.padEnd(24)}${countCells([shown, toolDefinitions.map(({ outputSchema }) => outputSchema)])}`)
  console.log(`  instructions: ${INSTRUCTIONS.length} characters, ${countTokens(INSTRUCTIONS)} tokens`)
}

function countCells(values: unknown[]): string {
  return values.map((value) => String(countTokens(JSON.stringify(value))).padStart(7)).join('')
}

function printTable(title: string, tree: Tree, measure: (file: string, source: string) => Sized[]): void {
  console.log(row([title, 'count', 'median', 'p90', 'max', 'largest']))
  for (const [area, pattern] of Object.entries(AREAS)) {
    const files = [...tree].filter(([file]) => isCode(file) && pattern.test(file))
    const sizes = distribute(files.flatMap(([file, source]) => measure(file, source)))
    if (sizes) console.log(row([`  ${area}`, sizes.count, sizes.median, sizes.p90, sizes.max, sizes.largest]))
  }
  console.log()
}

function row([title = '', ...cells]: (string | number)[]): string {
  const numbers = cells.slice(0, 4).map((cell) => String(cell).padStart(7))
  return `${String(title).padEnd(33)}${numbers.join('')}  ${cells[4] ?? ''}`
}

await printSizes()
