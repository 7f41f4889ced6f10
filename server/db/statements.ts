/** What may hold a semicolon that ends no statement: comments, quoted names and strings, dollar quotes, and words to count blocks by. */
const TOKEN =
  /--[^\n]*|\/\*|"(?:[^"]|"")*"|(?<![\w$])[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$|[\w$\u0080-\uffff]+|;/gs
const BLOCK_COMMENT_EDGE = /\/\*|\*\//g

/** The statements of a SQL script without their semicolons, as the Supabase CLI records them: comments stay where they are. */
export function splitStatements(script: string): string[] {
  const statements: string[] = []
  let start = 0
  let previous = ''
  let atomicDepth = 0
  for (const { token, index } of scan(script)) {
    const word = token.toLowerCase()
    if (word === 'atomic' && previous === 'begin') atomicDepth++
    else if (atomicDepth > 0 && word === 'case') atomicDepth++
    else if (atomicDepth > 0 && word === 'end') atomicDepth--
    if (token === ';' && atomicDepth === 0) {
      statements.push(script.slice(start, index))
      start = index + 1
    }
    if (!/^(--|\/\*)/.test(token)) previous = word
  }
  statements.push(script.slice(start))
  return statements.map((statement) => statement.trim()).filter((statement) => statement !== '')
}

function* scan(script: string): Generator<{ token: string; index: number }> {
  TOKEN.lastIndex = 0
  const tokens = new RegExp(TOKEN)
  for (let match = tokens.exec(script); match; match = tokens.exec(script)) {
    const [token] = match
    yield { token, index: match.index }
    if (token === '/*') tokens.lastIndex = endOfComment(script, match.index)
    else if (token.startsWith('$') && token.endsWith('$')) {
      const end = script.indexOf(token, match.index + token.length)
      tokens.lastIndex = end < 0 ? script.length : end + token.length
    }
  }
}

/** Block comments nest in Postgres. */
function endOfComment(script: string, start: number): number {
  let depth = 0
  for (const edge of script.slice(start).matchAll(BLOCK_COMMENT_EDGE)) {
    depth += edge[0] === '/*' ? 1 : -1
    if (depth === 0) return start + edge.index + 2
  }
  return script.length
}
