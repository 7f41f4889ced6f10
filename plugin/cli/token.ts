import { operatorVerb } from '../lib/operator.ts'

const EXPIRES_IN = '--expires-in 30d'

export const verb = operatorVerb('token', 'Tokens: what an agent proves itself with; shown once, on stdout, alone.', {
  create: { command: 'issue-token', arguments: ['NAME@NAMESPACE'], options: ['--label TEXT', EXPIRES_IN] },
  list: { command: 'list-tokens', arguments: ['NAMESPACE'] },
  rotate: { command: 'rotate-token', arguments: ['ID'], options: [EXPIRES_IN, '--overlap 1h'] },
  revoke: { command: 'revoke-token', arguments: ['ID'] },
})
