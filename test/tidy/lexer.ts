/** A token of JavaScript or TypeScript. `line` counts from 1 and is where the token starts. */
export interface Token {
  kind: 'word' | 'string' | 'template' | 'regex' | 'punctuation' | 'comment'
  text: string
  line: number
}

const SPACE = /\s+/y
const COMMENT = /\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/y
const HASHBANG = /#![^\n]*/y
const STRING = /'(?:[^'\\\n]|\\[\s\S])*'|"(?:[^"\\\n]|\\[\s\S])*"/y
const REGEX = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y
const WORD = /[\p{ID_Continue}$]+/uy
const PUNCTUATION = /=>|\?\.|\.\.\.|[\s\S]/uy
const TEMPLATE_TEXT = /(?:[^`\\$]+|\\[\s\S]|\$(?!\{))*/y

/** After these words an expression starts, so a slash opens a regular expression. */
const BEFORE_EXPRESSION = new Set(
  'return typeof case in of delete void throw new else do instanceof yield await'.split(' '),
)

/**
 * Splits source into tokens, comments included. TypeScript 7 has no compiler API, and what is asked here (imports, names,
 * braces) needs no grammar: it is enough never to mistake a string, template, comment or regular expression for code.
 * A `${` and its closing brace are the punctuation tokens `${` and `}$`. A quote without its partner on the same line (text in
 * JSX) is punctuation.
 */
export function tokenize(source: string): Token[] {
  const lexer = new Lexer(source)
  while (lexer.step()) {}
  return lexer.tokens
}

/** The tokens without comments. */
export function tokenizeCode(source: string): Token[] {
  return tokenize(source).filter((token) => token.kind !== 'comment')
}

class Lexer {
  readonly tokens: Token[] = []
  private readonly source: string
  private position = 0
  private line = 1
  private previous: Token | undefined
  private readonly braces: ('{' | '${')[] = []

  constructor(source: string) {
    this.source = source
  }

  step(): boolean {
    this.line += countNewlines(this.match(SPACE) ?? '')
    if (this.position >= this.source.length) return false
    const comment = this.match(COMMENT) ?? (this.position === 0 ? this.match(HASHBANG) : undefined)
    if (comment !== undefined) this.push('comment', comment)
    else this.readCode()
    return true
  }

  private readCode(): void {
    const string = this.match(STRING)
    const word = string === undefined ? this.match(WORD) : undefined
    const isRegex = word === undefined && this.canStartRegex()
    if (string !== undefined) this.push('string', string)
    else if (word !== undefined) this.push('word', word)
    else this.readSign(isRegex ? this.match(REGEX) : undefined)
  }

  private readSign(regex: string | undefined): void {
    if (regex !== undefined) {
      this.push('regex', regex)
      return
    }
    const text = this.match(PUNCTUATION) ?? ''
    if (text === '`') this.readTemplate('`')
    else if (text === '}') this.closeBrace()
    else {
      if (text === '{') this.braces.push('{')
      this.push('punctuation', text)
    }
  }

  private closeBrace(): void {
    const isInterpolation = this.braces.pop() === '${'
    this.push('punctuation', isInterpolation ? '}$' : '}')
    if (isInterpolation) this.readTemplate('')
  }

  private readTemplate(opening: string): void {
    const text = this.match(TEMPLATE_TEXT) ?? ''
    const isInterpolated = this.source.startsWith('${', this.position)
    if (!isInterpolated) this.position += 1
    this.push('template', `${opening}${text}${isInterpolated ? '' : '`'}`)
    if (!isInterpolated) return
    this.position += 2
    this.braces.push('${')
    this.push('punctuation', '${')
  }

  private canStartRegex(): boolean {
    const previous = this.previous
    if (previous === undefined) return true
    if (previous.kind === 'word') return BEFORE_EXPRESSION.has(previous.text)
    // After `<` it is the closing tag of JSX.
    return previous.kind === 'punctuation' && !')]}<'.includes(previous.text)
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.position
    const text = pattern.exec(this.source)?.[0]
    if (text !== undefined) this.position += text.length
    return text
  }

  private push(kind: Token['kind'], text: string): void {
    const token = { kind, text, line: this.line }
    this.tokens.push(token)
    if (kind !== 'comment') this.previous = token
    this.line += countNewlines(text)
  }
}

function countNewlines(text: string): number {
  return text.split('\n').length - 1
}
