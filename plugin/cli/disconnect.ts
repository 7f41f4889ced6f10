import { join } from 'node:path'
import { isRecord } from '../../scripts/lib/basics.cjs'
import { listClientLogs, removeClientLogs } from '../lib/client-logs.ts'
import { type Connection, Connections } from '../lib/connections.ts'
import { readEntry } from '../lib/edits.ts'
import { CommandError, EXIT } from '../lib/errors.ts'
import { readBytes } from '../lib/files.ts'
import { nameOf } from '../lib/identity.ts'
import { repeatWhenChanged } from '../lib/journal.ts'
import type { Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord disconnect [--logs]

Undoes connect in this folder: every file is as it was before, and where it was edited since, only our part is taken out.
The token stays valid: patchcord token revoke ID ends it.

  --logs    delete, too, what Claude Code has logged of its connections to the server in this folder`,
  options: { logs: { type: 'boolean' } },
  arity: [0, 0],
  async run({ environment, folder, options, output }) {
    const { configFolder, settings } = environment
    const places = { configFolder, trustFile: settings.trustFile, note: output.note }
    const { connection, done } = await Connections.use(places, async (connections) => {
      const found = connections.find(folder)
      if (found !== null)
        return { connection: found, done: await repeatWhenChanged(() => connections.disconnect(found)) }
      throw await notConnected(folder, connections)
    })
    const { agent, namespace, origin } = connection
    const { told, isDone, ...logs } = await lookAfterLogs(environment.claudeLogs, connection, options.logs === true)
    output.print(
      [`Disconnected from ${nameOf(connection)} at ${origin}.`, ...[...done, ...told].map((line) => `  ${line}`)],
      { agent, namespace, origin, files: connection.edits.map(({ file }) => file), ...logs },
    )
    return isDone ? EXIT.ok : EXIT.error
  },
}

interface Logs {
  told: string[]
  client_logs: string[]
  /** Not deleted, as they may be another project's. */
  client_logs_left: string[]
  client_log_problems: string[]
  /** Everything that was asked for. */
  isDone: boolean
}

/** Deletes only what is told by its content to be of this project and server: other projects' logs can be in a folder of the same name. */
async function lookAfterLogs(caches: string | null, { folder, url }: Connection, isAsked: boolean): Promise<Logs> {
  const { logs, problems } = await listClientLogs(caches, folder, url.replace(/\/mcp\/bearer$/, ''))
  const ours = logs.filter(({ isOurs }) => isOurs || !isAsked)
  const left = logs.filter((log) => !ours.includes(log)).map((log) => log.folder)
  if (isAsked) problems.push(...(await removeClientLogs(ours)))
  const isGone = (log: string) => isAsked && !problems.some((problem) => problem.endsWith(`: ${log}`))
  const stays = "Claude Code's own log of this server stays, delete it if you like"
  return {
    told: [
      ...ours.map((log) => (isGone(log.folder) ? `${log.folder}: deleted` : `${stays}: ${log.folder}`)),
      ...left.map((log) => `${log} is not told by its content to be of this project and server, and was left alone`),
      ...problems.map((problem) => `Claude Code's log ${problem}`),
    ],
    client_logs: ours.map((log) => log.folder),
    client_logs_left: left,
    client_log_problems: problems,
    isDone: !isAsked || problems.length === 0,
  }
}

/** A folder that was renamed carries our entry along; the record has it under the name of before. */
async function notConnected(folder: string, connections: Connections): Promise<CommandError> {
  const gone = await listNamesOfBefore(join(folder, '.mcp.json'), connections)
  const nothing = `patchcord connect has written nothing in ${folder}`
  if (gone.length === 0) {
    return new CommandError('not_connected', `${nothing}.`, {
      hint: 'An entry that was written by hand is removed by hand, from .mcp.json.',
    })
  }
  return new CommandError(
    'not_connected',
    `${nothing} under this name, but .mcp.json holds the entry of a folder that is gone: ${gone.join(' or ')}.`,
    { hint: `If this is it, give it that name again and disconnect there, then rename it. Nothing was changed.` },
  )
}

async function listNamesOfBefore(file: string, connections: Connections): Promise<string[]> {
  const entry = await readBytes(file)
    .then((bytes) => readEntry(file, bytes))
    .catch((error) => {
      // What cannot be read holds no entry that we could tell of.
      if (error instanceof CommandError) return null
      throw error
    })
  return isRecord(entry) && typeof entry.url === 'string' ? await connections.listGone(entry.url) : []
}
