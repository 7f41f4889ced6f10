export interface Selection {
  isPostgres15: boolean
  isKill: boolean
  /** A file is run when its path holds one of these; all are, when there is none. */
  parts: string[]
}

/**
 * Postgres 15 differs from the newest in its SQL and in how it plans and locks, so only what depends on a statement of ours has
 * to be seen on it. Named here is what does not: folders that touch no database or start their own, and those that need one
 * only so that a server answers. A folder that is not named counts as one that does depend on it.
 */
const WITHOUT_POSTGRES = /^test\/(?:tidy|runner|scripts|dev|faults|plugin|conformance|failures|config|app|main)[./]/

/** And in the other folders, files about sockets, frames, streams, clients or what is refused before the first statement. */
const NAMES_WITHOUT_POSTGRES: Record<string, string[]> = {
  realtime: [
    ...['attack', 'attack-listener', 'channel', 'codecs', 'deadlines', 'golden', 'handshake', 'hub', 'hub-failures'],
    ...['official-client', 'serializers', 'socket'],
  ],
  // What an answer weighs in tokens; that its pages are complete and in order, domain/ shows.
  mcp: ['budgets', 'catch-up', 'connections', 'fence', 'lines', 'streams'],
  http: ['address-limit', 'gate', 'guards', 'log', 'openapi'],
  // What processes, sockets and two instances do with answers that domain/ and wakes/ see on it; `kill` brings a Postgres of its own.
  'end-to-end': ['flood', 'instances', 'kill', 'revocation', 'unread'],
}
export const FILES_WITHOUT_POSTGRES = Object.entries(NAMES_WITHOUT_POSTGRES).flatMap(([folder, names]) =>
  names.map((name) => `test/${folder}/${name}.test.ts`),
)

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
    .filter((file) => !isPostgres15 || needsPostgres(file))
    .filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)))
    .sort()
}

function needsPostgres(file: string): boolean {
  return !WITHOUT_POSTGRES.test(file) && !FILES_WITHOUT_POSTGRES.includes(file)
}
