/**
 * How many tokens (o200k) a text takes, rather too many than too few: no list of two hundred thousand tokens is asked, only how
 * letters, digits, marks and scripts fall into tokens at their worst. English comes out 1.6 times too long, and other
 * natural languages two or three times.
 */
export function estimateTokens(text: string): number {
  let tokens = 0
  for (const [run] of text.matchAll(RUNS)) tokens += costOf(run)
  return Math.ceil(tokens)
}

/** As much of a text from its start as takes `max` tokens by that estimate, in whole characters. */
export function cutToTokens(text: string, max: number): string {
  let tokens = 0
  for (const { 0: run, index } of text.matchAll(RUNS)) {
    const cost = costOf(run)
    if (tokens + cost > max) return text.slice(0, index)
    tokens += cost
  }
  return text
}

/**
 * What each of these texts may take when all of them may take `max`: short ones all they want, and the rest is shared evenly
 * among the long ones.
 */
export function shareTokens(wanted: number[], max: number): number[] {
  const shares = new Array<number>(wanted.length).fill(0)
  const order = wanted.map((_, index) => index).sort((a, b) => (wanted[a] ?? 0) - (wanted[b] ?? 0))
  let left = Math.max(0, max)
  for (const [done, index] of order.entries()) {
    const share = Math.min(wanted[index] ?? 0, left / (order.length - done))
    shares[index] = share
    left -= share
  }
  return shares
}

/** Short runs, so that a cut through a text is fine enough whatever it is made of. */
const RUNS = / ?[A-Za-z]{1,40}|[0-9]{1,3}| {1,16}(?= )|\s|[^A-Za-z0-9\s]/gu

/** Pairs of letters that most words are made of, and that tokens therefore hold. */
const COMMON = new Set(
  (
    'th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic ne ea ' +
    'ra ce li ch ll be ma si om ur'
  ).split(' '),
)
const LOWER = 0.58
const UPPER = 0.75
const COMMON_LESS = 0.22
const MARK = 0.75
/** In JSON a backslash stands before these. */
const ESCAPED = '"\\'

/** The first character after a range of scripts, and what one character of it takes at the worst. */
const SCRIPTS: [end: number, tokens: number][] = [
  [0x80, MARK],
  [0x250, 1.05],
  [0x370, 2],
  [0x400, 0.95],
  [0x530, 0.75],
  [0x700, 0.95],
  [0x900, 2],
  [0xe80, 1.2],
  [0x2000, 3],
  [0x2070, 1.3],
  [0x3000, 2.2],
  [0x3100, 1.25],
  [0x4e00, 3],
  [0xa000, 1.95],
  [0xac00, 3],
  [0xd7a4, 2.3],
  [0x1_0000, 3],
  [0x1_d400, 4],
  [0x1_d800, 3],
  [0x1_f300, 4],
  [0x1_fb00, 3],
]
const RAREST = 4

function costOf(run: string): number {
  const code = run.codePointAt(0) ?? 0
  if (code > 0x7f) return SCRIPTS.find(([end]) => code < end)?.[1] ?? RAREST
  // A space before a word is part of its token; other white space may be a token of its own.
  if (/^ ?[A-Za-z]/.test(run)) return costOfLetters(run.trimStart())
  return /^[\s0-9]/.test(run) || ESCAPED.includes(run) ? 1 : MARK
}

function costOfLetters(run: string): number {
  let cost = 0
  for (const letter of run) cost += letter >= 'a' ? LOWER : UPPER
  for (let at = 1; at < run.length; at++) if (COMMON.has(run.slice(at - 1, at + 1))) cost -= COMMON_LESS
  return Math.max(1, cost)
}
