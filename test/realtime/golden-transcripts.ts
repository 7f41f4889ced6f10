import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Transcripts of clients and the real Supabase Realtime, one a file: the tokens, then what was sent and what came. */
const FOLDER = join(import.meta.dirname, '../fixtures/realtime')

export interface Token {
  /** Times are relative to the moment; 'soon' is one that the transcript outlives. */
  claims: Record<string, unknown>
  signedBy: 'us' | 'another'
}

/** Of several clients each step names its own; without a name it is the first one's. */
export type Step = { client?: number } & (
  | { send: 'http' | 'text' | 'unmasked'; raw: string }
  | { send: 'fragments'; raw: string; ping: string }
  | { send: 'binary'; hex: string }
  | { send: 'close'; code: number }
  | { do: 'insert'; to: string }
  | { do: 'outlive'; token: string }
  | { expect: 'http'; raw: string; body?: string }
  | { expect: 'text'; raw: string }
  | { expect: 'binary' | 'pong'; hex: string; note?: string }
  | { expect: 'close'; code: number; reason: string }
  | { expect: 'end' }
)

export interface Transcript {
  /** What stands before the first underscore of the file's name. */
  number: string
  name: string
  tokens: Record<string, Token>
  steps: Step[]
}

export function readTranscripts(): Transcript[] {
  return readdirSync(FOLDER).map((file) => {
    const lines = readFileSync(join(FOLDER, file), 'utf8').trimEnd().split('\n')
    const [head, ...steps] = lines.map((line) => JSON.parse(line))
    const name = file.replace(/\.jsonl$/, '')
    return { number: name.split('_')[0] as string, name, tokens: head.tokens, steps }
  })
}
