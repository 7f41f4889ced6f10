const YES = /^\s*y(?:es)?\s*$/i
/** A longer answer is none that a person types. */
const CHARACTERS_MAX = 100

export interface Keyboard {
  isTTY?: boolean
  /** Nothing more can come, as after a text that was ended with Ctrl-D. */
  readableEnded?: boolean
  setEncoding(encoding: 'utf8'): unknown
  on(event: 'data' | 'end', listener: (text: string) => void): unknown
  off(event: 'data' | 'end', listener: (text: string) => void): unknown
  resume(): unknown
  pause(): unknown
}

export interface Terminal {
  input: Keyboard
  output: { write(text: string): unknown }
}

/** A model can start a terminal and type into it, so its own is none. */
export function canAsk({ isTTY, readableEnded }: Keyboard, isStartedByModel: boolean): boolean {
  return isTTY === true && readableEnded !== true && !isStartedByModel
}

/** Asks a person once; whatever is not "y" or "yes" is a no. */
export function confirm(question: string, { input, output }: Terminal): Promise<boolean> {
  output.write(`${question} [y/N] `)
  input.setEncoding('utf8')
  let typed = ''
  return new Promise((resolve) => {
    const end = () => {
      input.off('data', read)
      input.off('end', end)
      input.pause()
      resolve(YES.test(typed.split(/[\r\n]/)[0] ?? ''))
    }
    function read(text: string): void {
      typed += text
      if (/[\r\n]/.test(typed) || typed.length > CHARACTERS_MAX) end()
    }
    input.on('data', read)
    input.on('end', end)
    input.resume()
  })
}
