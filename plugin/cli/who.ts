import { callApi } from '../lib/api.ts'
import { EXIT } from '../lib/errors.ts'
import { cleanLabel } from '../lib/frame.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { describeAge, PAUSED, protect } from '../lib/show.ts'
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

interface Agents {
  namespace: string
  paused_at?: string
  agents: Agent[]
  offline_left_out: number
}

/** What each reach means; the words are the server's. */
const REACHES = {
  wakeable: 'its listener runs, so a message wakes it at once',
  online: 'seen in the last 3 minutes, without a listener: it finds a message when it looks',
  offline: 'not seen in the last 3 minutes: a message waits in its inbox',
}

export const verb: Verb = {
  help: `patchcord who [--all]

The agents of your namespace and what is known of their reach.

  --all  offline agents too

${describeReaches(Object.keys(REACHES), '  ').join('\n')}`,
  options: { ...AS_OPTION, all: { type: 'boolean' } },
  arity: [0, 0],
  async run(invocation) {
    const { options, output } = invocation
    const path = `/api/agents?all=${options.all === true ? 1 : 0}`
    const answer = await callApi<Agents>(await findServer(invocation), 'GET', path)
    const { agents, namespace, offline_left_out: left } = answer
    const rest = left > 0 ? [`${cleanLabel(left, 20)} offline: patchcord who --all`] : []
    output.print(
      [
        `${cleanLabel(namespace)}:`,
        ...(answer.paused_at ? [PAUSED] : []),
        ...agents.map(describeAgent),
        ...rest,
        '',
        ...describeReaches(agents.map(({ reach }) => reach)),
      ],
      protect(answer, namespace, output),
    )
    return EXIT.ok
  },
}

/** Those of `shown`, each once. */
function describeReaches(shown: string[], indent = ''): string[] {
  const entries = Object.entries(REACHES).filter(([reach]) => shown.includes(reach))
  return entries.map(([reach, meaning]) => `${indent}${reach}: ${meaning}`)
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
