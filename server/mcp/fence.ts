import { randomBytes } from 'node:crypto'

const MARKER_BYTES = 8
const LABEL_CHARACTERS_MAX = 120

/**
 * What shows nothing and yet reaches a model: zero-width and bidirectional controls, fillers, tag characters, variation
 * selectors, and control characters except tab and newline. Joiners and selectors that belong to the text are spared below.
 */
const HIDDEN = new RegExp(
  '[' +
    '\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f' +
    '\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f' +
    '\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ud800-\\udfff' +
    '\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}' +
    ']',
  'gu',
)
const LINE_ENDS = /\r\n?|[\u2028\u2029]/g
/** One selector after a character that has variants (emoji, Han, keycap digits); a chain of them is a smuggled text. */
const SELECTED = /[\p{Extended_Pictographic}\p{Script=Han}\p{Script=Mongolian}\p{Math}#*0-9]$/u
const SELECTOR = /^[\u180b-\u180d\u180f\ufe00-\ufe0f\u{e0100}-\u{e01ef}]$/u
/** Joiners make one emoji of several, and shape letters of Arabic and Indic scripts. */
const JOINER = /^[\u200c\u200d]$/
const JOINED_BEFORE =
  /(?:\p{Extended_Pictographic}[\ufe0f\p{Emoji_Modifier}]?|[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}])$/u
const JOINED_AFTER =
  /^[\p{Extended_Pictographic}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}]/u
/** Enough to hold any character before, with its selector or modifier. */
const BEFORE_UNITS = 4

export interface Provenance {
  /** `agent@namespace`, as the server knows it. */
  from: string
  id: string
  trust: 'same-namespace' | 'contact' | 'stranger'
}

export interface Fence {
  /** The name of the tags of this answer: `message-` and 16 random hexadecimal digits. */
  marker: string
  /** A body between tags of its own lines, and behind them what was removed from it. */
  wrap(provenance: Provenance, body: string): string
  /** A short text between tags on one line. */
  wrapLine(provenance: Provenance, text: string): string
}

/** The text without hidden characters (and how many there were), its line ends as newlines. */
export function cleanText(text: string): { text: string; removed: number } {
  const lines = text.replace(LINE_ENDS, '\n')
  let removed = 0
  const clean = lines.replace(HIDDEN, (character, at: number) => {
    if (isPartOfText(lines, character, at)) return character
    removed++
    return ''
  })
  return { text: clean, removed }
}

function isPartOfText(text: string, character: string, at: number): boolean {
  const before = text.slice(Math.max(0, at - BEFORE_UNITS), at)
  if (SELECTOR.test(character)) return SELECTED.test(before)
  if (!JOINER.test(character)) return false
  return JOINED_BEFORE.test(before) && JOINED_AFTER.test(text.slice(at + 1, at + 3))
}

/** A name or another short text of somebody else, for a line of ours: nothing hidden, no new line, no brackets of tags. */
export function cleanLabel(text: string): string {
  const line = cleanText(text)
    .text.replace(/[\s<>]+/g, ' ')
    .trim()
  return line.length > LABEL_CHARACTERS_MAX ? `${line.slice(0, LABEL_CHARACTERS_MAX).trimEnd()}…` : line
}

/** A fence for one answer. Nobody can write its tags before the answer exists, and a body that holds them loses them. */
export function createFence(bytes: Buffer = randomBytes(MARKER_BYTES)): Fence {
  const digits = bytes.toString('hex')
  const marker = `message-${digits}`
  const open = ({ from, id, trust }: Provenance) =>
    `<${marker} from="${cleanAttribute(from)}" id="${cleanAttribute(id)}" trust="${trust}">`
  const close = `</${marker}>`
  return {
    marker,
    wrap(provenance, body) {
      const { text, removed } = cleanText(body)
      const fenced = `${open(provenance)}\n${stripMarker(text, digits)}\n${close}`
      return removed === 0 ? fenced : `${fenced}\n[hidden characters removed from this text: ${removed}]`
    },
    wrapLine(provenance, text) {
      const line = cleanText(text).text.replace(/\s+/g, ' ')
      return `${open(provenance)}${stripMarker(line, digits)}${close}`
    },
  }
}

/** Until none is left: removing one may put another together. */
function stripMarker(text: string, digits: string): string {
  const pattern = new RegExp(digits, 'gi')
  let stripped = text
  while (pattern.test(stripped)) stripped = stripped.replace(pattern, '')
  return stripped
}

function cleanAttribute(text: string): string {
  return cleanLabel(text).replaceAll('"', '')
}
