import { runOperator } from '../lib/operator.ts'
import type { Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord login-link [PERSON]

Prints a link that signs a person in to the dashboard: once, within 15 minutes. PERSON is a name, an e-mail address or an id;
without it the link is for the operator, who owns every namespace that nobody else owns. Whoever opens the link is that person.
For operators: works on the database of DATABASE_ADMIN_URL, or else on the data folder (PATCHCORD_DATA_DIR) of a running
server. Behind a proxy set PATCHCORD_PUBLIC_URL, so that the link leads there.`,
  arity: [0, 1],
  run: (invocation) => runOperator(['login-link', ...invocation.arguments], invocation),
}
