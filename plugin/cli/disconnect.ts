import { join } from 'node:path'
import { isRecord } from '../../scripts/lib/text.mjs'
import { Connections } from '../lib/connections.ts'
import { readEntry } from '../lib/edits.ts'
import { CommandError, EXIT } from '../lib/errors.ts'
import { readBytes } from '../lib/files.ts'
import { nameOf } from '../lib/identity.ts'
import { repeatWhenChanged } from '../lib/journal.ts'
import type { Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord disconnect

Undoes connect in this folder: every file is as it was before, and where it was edited since, only our part is taken out.
The token stays valid: patchcord token revoke ID ends it.`,
  arity: [0, 0],
  async run({ environment, folder, output }) {
    const { configFolder, settings } = environment
    const places = { configFolder, trustFile: settings.trustFile, note: output.note }
    const { connection, done } = await Connections.use(places, async (connections) => {
      const found = connections.find(folder)
      if (found !== null)
        return { connection: found, done: await repeatWhenChanged(() => connections.disconnect(found)) }
      throw await notConnected(folder, connections)
    })
    const { agent, namespace, origin } = connection
    output.print([`Disconnected from ${nameOf(connection)} at ${origin}.`, ...done.map((line) => `  ${line}`)], {
      agent,
      namespace,
      origin,
      files: connection.edits.map(({ file }) => file),
    })
    return EXIT.ok
  },
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
