import { usageError } from './errors.ts'

const BYTES_MAX = 1024 * 1024

/** The text of a message: an argument, or stdin where it is `-`. Throws where there is none. */
export async function readContent(argument: string | undefined, what: string): Promise<string> {
  if (argument === undefined)
    throw usageError(`There is no ${what}.`, 'Give it as one argument, or - to read it from stdin.')
  const text = argument === '-' ? (await readStdin()).replace(/\r?\n$/, '') : argument
  if (text.trim() !== '') return text
  throw usageError(`The ${what} is empty.`, 'Give its text as one argument, or - to read it from stdin.')
}

export async function readStdin(): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of process.stdin) {
    bytes += (chunk as Buffer).length
    if (bytes > BYTES_MAX) throw usageError('stdin is longer than 1 MiB.', 'Messages have at most 50,000 characters.')
    chunks.push(chunk as Buffer)
  }
  return Buffer.concat(chunks).toString('utf8')
}
