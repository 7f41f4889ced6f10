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
/** An element starts where an expression may: `<` and a name, or `<>`. */
const JSX_START = /<(?=[\p{ID_Start}$_>])/uy
const JSX_TEXT = /[^<{]+/y
const JSX_CLOSE = /<\/[^>]*>/y
const JSX_NAME = /[\p{ID_Continue}$:.-]+/uy
const JSX_STRING = /'[^']*'|"[^"]*"/y
const JSX_SIGN = /\/>|[\s\S]/uy

/** After these words an expression starts, so a slash opens a regular expression. */
const BEFORE_EXPRESSION = new Set(
  'return typeof case in of delete void throw new else do instanceof yield await'.split(' '),
)

/**
 * Splits source into tokens, comments included. TypeScript 7 has no compiler API, and what is asked here (imports, names,
 * braces) needs no grammar: it is enough never to mistake a string, template, comment or regular expression for code.
 * A `${` and its closing brace are the punctuation tokens `${` and `}$`. With `isJsx` (files named *.tsx) the text between tags is
 * left out, whatever quotes and slashes it holds; the code in its braces is read.
 */
export function tokenize(source: string, isJsx = false): Token[] {
  const lexer = new Lexer(source, isJsx)
  while (lexer.step()) {}
  return lexer.tokens
}

/** The tokens without comments. */
export function tokenizeCode(source: string, isJsx = false): Token[] {
  return tokenize(source, isJsx).filter((token) => token.kind !== 'comment')
}

class Lexer {
  readonly tokens: Token[] = []
  private readonly source: string
  private readonly isJsx: boolean
  private position = 0
  private line = 1
  private previous: Token | undefined
  private readonly braces: ('{' | '${')[] = []

  constructor(source: string, isJsx: boolean) {
    this.source = source
    this.isJsx = isJsx
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
    const startsExpression = string === undefined && word === undefined && this.startsExpression()
    if (startsExpression && this.isJsx && this.match(JSX_START)) {
      this.readElement()
      return
    }
    if (string !== undefined) this.push('string', string)
    else if (word !== undefined) this.push('word', word)
    else this.readSign(startsExpression ? this.match(REGEX) : undefined)
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

  /** After its `<`: the tag, and what it encloses unless it closes itself. */
  private readElement(): void {
    this.push('punctuation', '<')
    if (this.readTag() === '/>') return
    while (this.position < this.source.length) {
      this.line += countNewlines(this.match(JSX_TEXT) ?? '')
      const closing = this.match(JSX_CLOSE)
      if (closing !== undefined) {
        this.push('punctuation', closing)
        return
      }
      if (this.match(JSX_START)) this.readElement()
      else if (this.source[this.position] === '{') this.readBraces()
      // A `<` that opens nothing: whoever wrote it sees what the compiler says of it.
      else this.position += 1
    }
  }

  /** Names, attributes and their values, up to the sign that ends the tag. */
  private readTag(): string {
    while (this.position < this.source.length) {
      this.line += countNewlines(this.match(SPACE) ?? '')
      const name = this.match(JSX_NAME)
      const string = name === undefined ? this.match(JSX_STRING) : undefined
      if (name !== undefined) this.push('word', name)
      else if (string !== undefined) this.push('string', string)
      else if (this.source[this.position] === '{') this.readBraces()
      else {
        const sign = this.match(JSX_SIGN) ?? ''
        this.push('punctuation', sign)
        if (sign === '>' || sign === '/>') return sign
      }
    }
    return ''
  }

  /** Code in braces, with both braces. */
  private readBraces(): void {
    const depth = this.braces.length
    do {
      if (!this.step()) return
    } while (this.braces.length > depth)
  }

  private startsExpression(): boolean {
    const previous = this.previous
    if (previous === undefined) return true
    if (previous.kind === 'word') return BEFORE_EXPRESSION.has(previous.text)
    // After `<` it is a closing tag in JSX that is read as plain code.
    return previous.kind === 'punctuation' && !')]}<'.includes(previous.text) && !previous.text.startsWith('</')
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
