import { Connections } from '../lib/connections.ts'
import { CommandError, EXIT } from '../lib/errors.ts'
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
      throw new CommandError('not_connected', `patchcord connect has written nothing in ${folder}.`, {
        hint: 'An entry that was written by hand is removed by hand, from .mcp.json.',
      })
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
