const CHARACTERS_MAX = 700
const LINES_MAX = 14
/** Of a text; what comes after them is a replacement character: a page of nothing but marks would hold up the server. */
const MARKS_MAX = 40
/** Controls (but for tab and line feed), format, zero-width and bidi signs (but what joins an emoji), variation selectors but the one of emoji, tags, fillers. */
const INVISIBLE = new RegExp(
  [
    '\\p{Cc}',
    '(?!(?<=[\\p{Extended_Pictographic}\\ufe0f\\u{1f3fb}-\\u{1f3ff}])\\u200d\\p{Extended_Pictographic})\\p{Cf}',
    '\\p{Zl}',
    '\\p{Zp}',
    '[\\u115f\\u1160\\u3164\\uffa0\\ufe00-\\ufe0e]',
    '\\u034f',
    '[\\u17b4\\u17b5\\u180b-\\u180f]',
    '[\\u{e0000}-\\u{e0fff}]',
  ].join('|'),
  'gu',
)

/**
 * Text of agents and people: escaped, with invisible characters made visible, long ones folded. `inline` for names and
 * previews, where line ends are spaces.
 */
export function Text(props: { value: string; inline?: boolean }) {
  if (props.inline) {
    return <bdi>{showInvisible(props.value.replaceAll(/\s*\n\s*/g, ' '))}</bdi>
  }
  const cut = findCut(props.value)
  if (cut === null) {
    return (
      <div class="text" dir="auto">
        {showInvisible(props.value)}
      </div>
    )
  }
  const rest = props.value.slice(cut)
  return (
    <div class="folded">
      <div class="text" dir="auto">
        {showInvisible(props.value.slice(0, cut))}
      </div>
      <details>
        <summary>Show the other {rest.length.toLocaleString('en')} characters</summary>
        <div class="text" dir="auto">
          {showInvisible(rest.replace(/^\n/, ''))}
        </div>
      </details>
    </div>
  )
}

/** Where a long text is folded: after a line or a word where one ends near the limit; null: it is short enough. */
function findCut(text: string): number | null {
  const lines = Array.from(text.matchAll(/\n/g), ({ index }) => index)
  const lineCut = lines.length > LINES_MAX ? (lines[LINES_MAX - 1] ?? null) : null
  const max = Math.min(CHARACTERS_MAX, lineCut ?? CHARACTERS_MAX)
  // A fold that hides a few words is in the way.
  if (lineCut === null && text.length <= max * 1.25) return null
  const line = text.lastIndexOf('\n', max)
  const near = line > max / 2 ? line : text.lastIndexOf(' ', max)
  const cut = near > max / 2 ? near : max
  return isLowSurrogate(text, cut) ? cut + 1 : cut
}

function isLowSurrogate(text: string, index: number): boolean {
  return (text.charCodeAt(index) & 0xfc00) === 0xdc00
}

function showInvisible(text: string) {
  const parts: (string | ReturnType<typeof Invisible>)[] = []
  let from = 0
  let marks = 0
  for (const { character, count, index } of listRuns(text)) {
    if (marks++ === MARKS_MAX) return [...parts, text.slice(from).replaceAll(INVISIBLE, toPlainMark)]
    parts.push(text.slice(from, index), <Invisible character={character} count={count} />)
    from = index + character.length * count
  }
  parts.push(text.slice(from))
  return parts
}

/** Each invisible character, and how often it stands there in a row: of fifty thousand, one mark tells more. */
function listRuns(text: string) {
  const runs: { character: string; count: number; index: number }[] = []
  for (const { 0: character, index } of text.matchAll(INVISIBLE)) {
    if (isLayout(character)) continue
    const last = runs.at(-1)
    if (last?.character === character && last.index + character.length * last.count === index) last.count++
    else if (runs.push({ character, count: 1, index }) > MARKS_MAX) break
  }
  return runs
}

function isLayout(character: string): boolean {
  return character === '\n' || character === '\t'
}

function toPlainMark(character: string): string {
  return isLayout(character) ? character : '\ufffd'
}

function Invisible({ character, count }: { character: string; count: number }) {
  const code = `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`
  return (
    <span class="invisible" title={`An invisible character: ${code}`}>
      {count === 1 ? code : `${code} × ${count}`}
    </span>
  )
}
