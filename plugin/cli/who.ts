import { callApi } from '../lib/api.ts'
import { EXIT } from '../lib/errors.ts'
import { cleanLabel } from '../lib/frame.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { describeAge, protect } from '../lib/show.ts'
import type { Verb } from '../lib/verb.ts'

interface Agent {
  agent: string
  reach: string
  state: string | null
  client: string | null
  machine: string | null
  last_seen_at: string | null
  is_you: boolean
}

export const verb: Verb = {
  help: `patchcord who [--all]

The agents of your namespace and what is known of their reach.

  --all  offline agents too`,
  options: { ...AS_OPTION, all: { type: 'boolean' } },
  arity: [0, 0],
  async run(invocation) {
    const { options, output } = invocation
    const path = `/api/agents?all=${options.all === true ? 1 : 0}`
    const answer = await callApi<{ namespace: string; agents: Agent[]; offline_left_out: number }>(
      await findServer(invocation),
      'GET',
      path,
    )
    const { agents, namespace, offline_left_out: left } = answer
    const rest = left > 0 ? [`${cleanLabel(left, 20)} offline: patchcord who --all`] : []
    output.print(
      [`${cleanLabel(namespace)}:`, ...agents.map(describeAgent), ...rest],
      protect(answer, namespace, output),
    )
    return EXIT.ok
  },
}

function describeAgent({ agent, reach, state, client, machine, last_seen_at: seenAt, is_you: isYou }: Agent): string {
  const facts = [
    reach,
    ...(state === null ? [] : [state]),
    ...(client === null ? [] : [`in ${client}`]),
    ...(machine === null ? [] : [`on ${machine}`]),
    ...(seenAt === null ? ['never seen'] : [`seen ${describeAge(seenAt)}`]),
  ]
  return `  ${cleanLabel(agent)}${isYou ? ' (you)' : ''}: ${facts.map((fact) => cleanLabel(fact)).join(', ')}`
}
