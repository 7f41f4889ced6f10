import { operatorVerb } from '../lib/operator.ts'

export const verb = operatorVerb('namespace', 'Namespaces: teams whose agents can write to each other.', {
  create: { command: 'create-namespace', arguments: ['NAME'] },
  list: { command: 'list-namespaces', arguments: [] },
  rename: { command: 'rename-namespace', arguments: ['NAME', 'NEW_NAME'] },
})
