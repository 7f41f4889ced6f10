export interface Selection {
  isPostgres15: boolean
  isKill: boolean
  /** A file is run when its path holds one of these; all are, when there is none. */
  parts: string[]
}

/** What touches no database or starts its own, so that Postgres 15 changes nothing about it; a new folder counts as one that does. */
const WITHOUT_POSTGRES = /^test\/(?:tidy|runner|scripts|dev|faults)[./]/

export function parseArguments(args: string[]): Selection {
  const unknown = args.find((arg) => arg.startsWith('-') && !['--postgres15', '--kill'].includes(arg))
  if (unknown !== undefined) throw new Error(`${unknown}: the options are --postgres15 and --kill`)
  return {
    isPostgres15: args.includes('--postgres15'),
    isKill: args.includes('--kill'),
    parts: args.filter((arg) => !arg.startsWith('-')),
  }
}

/** Test files in the order in which they run: `*.kill.ts` with `isKill`, else `*.test.ts`. */
export function selectFiles(files: string[], { isPostgres15, isKill, parts }: Selection): string[] {
  return files
    .filter((file) => file.endsWith(isKill ? '.kill.ts' : '.test.ts'))
    .filter((file) => !isPostgres15 || !WITHOUT_POSTGRES.test(file))
    .filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)))
    .sort()
}
