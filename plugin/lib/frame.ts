import { randomBytes } from 'node:crypto'

const MARKER_BYTES = 8
const LABEL_CHARACTERS_MAX = 200
const TERMINAL_INDENT = '    '

/** What shows nothing, moves the cursor or turns the direction of the text; newline and tab are text. */
const HIDDEN = /[^\P{Cc}\n\t]|[\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu
/** An emoji of several, or one with a selector, is one character to people; so are joined letters of Arabic and Indic scripts. */
const EMOJI_BEFORE = /(?:[\p{Extended_Pictographic}\p{Emoji_Modifier}#*0-9]|\ufe0f)$/u
const JOINED_LETTER = /(?!\p{Script=Latin}|\p{Script=Greek}|\p{Script=Cyrillic}|\p{Script=Inherited})[\p{L}\p{M}]/u

export interface Provenance {
  /** `alice@acme` */
  from: string
  id: string
}

/** Words of other agents for one answer: between tags that nobody could have written before, or for a person's eyes. */
export interface Frame {
  wrap(provenance: Provenance, text: string): string
  wrapLine(provenance: Provenance, text: string): string
}

/** The text without hidden characters (and how many there were), its line ends as newlines. */
export function cleanText(text: string): { text: string; removed: number } {
  const lines = text.replace(/\r\n?/g, '\n')
  let removed = 0
  const clean = lines.replace(HIDDEN, (character, at: number) => {
    if (isPartOfText(character, lines.slice(Math.max(0, at - 2), at), lines.slice(at + character.length)))
      return character
    removed++
    return ''
  })
  return { text: clean, removed }
}

function isPartOfText(character: string, before: string, rest: string): boolean {
  const next = String.fromCodePoint(rest.codePointAt(0) ?? 0)
  if (character === '\ufe0f') return EMOJI_BEFORE.test(before) && !before.endsWith('\ufe0f')
  if (character === '\u200d' && /\p{Extended_Pictographic}/u.test(next)) return EMOJI_BEFORE.test(before)
  return /[\u200c\u200d]/.test(character) && JOINED_LETTER.test(before.slice(-1)) && JOINED_LETTER.test(next)
}

/** A name or another short text of somebody else, on one line of ours. */
export function cleanLabel(text: unknown, charactersMax = LABEL_CHARACTERS_MAX): string {
  const line = cleanText(String(text ?? ''))
    .text.replace(/\s+/g, ' ')
    .trim()
  const characters = [...line]
  return characters.length > charactersMax ? `${characters.slice(0, charactersMax - 1).join('')}…` : line
}

/** JSON whose every byte a terminal may see: what JSON.stringify leaves raw is escaped too. */
export function toSafeJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(/[^\P{Cc}\n]|[\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    [...Array(character.length).keys()]
      .map((index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`)
      .join(''),
  )
}

/**
 * With a person at the terminal a text is indented, so that no line of it passes for one of ours. Everywhere else it may
 * reach a model: it stands between tags with fresh random digits, and what could close them is taken out.
 */
export function createFrame(isTerminal: boolean, bytes: Buffer = randomBytes(MARKER_BYTES)): Frame {
  if (isTerminal) {
    return {
      wrap: (_, text) => indent(cleanText(text).text),
      wrapLine: (_, text) => cleanLabel(text),
    }
  }
  const digits = bytes.toString('hex')
  const open = ({ from, id }: Provenance) =>
    `<message-${digits} from="${toAttribute(from)}" id="${toAttribute(id)}" trust="same-namespace">`
  const close = `</message-${digits}>`
  return {
    wrap(provenance, body) {
      const { text, removed } = cleanText(body)
      const note = removed === 0 ? '' : `\n[hidden characters removed from this text: ${removed}]`
      return `${open(provenance)}\n${stripDigits(text, digits)}\n${close}${note}`
    },
    wrapLine: (provenance, text) => `${open(provenance)}${stripDigits(cleanLabel(text), digits)}${close}`,
  }
}

function indent(text: string): string {
  return text
    .split('\n')
    .map((line) => `${TERMINAL_INDENT}${line}`)
    .join('\n')
}

/** Until none is left: taking one out may put another together. */
function stripDigits(text: string, digits: string): string {
  const pattern = new RegExp(digits, 'i')
  let stripped = text
  while (pattern.test(stripped)) stripped = stripped.replace(new RegExp(digits, 'gi'), '')
  return stripped
}

function toAttribute(text: string): string {
  return cleanLabel(text).replaceAll(/["<>]/g, '')
}
