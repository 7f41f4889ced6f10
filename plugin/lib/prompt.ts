import { CommandError } from './errors.ts'

const KEYS = { enter: '\r\n', cancel: '\u0003\u0004', erase: '\u0008\u007f' }

export interface TerminalInput {
  isTTY?: boolean
  setRawMode?(isRaw: boolean): unknown
  setEncoding(encoding: 'utf8'): unknown
  on(event: 'data', listener: (text: string) => void): unknown
  off(event: 'data', listener: (text: string) => void): unknown
  resume(): unknown
  pause(): unknown
}

/** Asks at the terminal for a secret, which is not shown while it is typed or pasted. Throws when it is broken off. */
export function askSecret(
  question: string,
  input: TerminalInput,
  output: { write(text: string): unknown },
): Promise<string> {
  output.write(question)
  input.setRawMode?.(true)
  input.setEncoding('utf8')
  let secret = ''
  return new Promise((resolve, reject) => {
    const end = (settle: () => void) => {
      input.off('data', read)
      input.setRawMode?.(false)
      input.pause()
      output.write('\n')
      settle()
    }
    function read(text: string): void {
      for (const key of text) {
        if (KEYS.enter.includes(key)) end(() => resolve(secret))
        else if (KEYS.cancel.includes(key)) {
          end(() => reject(new CommandError('cancelled', 'Broken off. Nothing was changed.')))
        } else {
          secret = KEYS.erase.includes(key) ? secret.slice(0, -1) : secret + key
          continue
        }
        return
      }
    }
    input.on('data', read)
    input.resume()
  })
}
