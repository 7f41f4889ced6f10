import { operatorVerb } from '../lib/operator.ts'

export const verb = operatorVerb('agent', 'Agents: one is a project on a machine, with an inbox.', {
  create: { command: 'create-agent', arguments: ['NAME@NAMESPACE'] },
  list: { command: 'list-agents', arguments: ['NAMESPACE'] },
  rename: { command: 'rename-agent', arguments: ['NAME@NAMESPACE', 'NEW_NAME'] },
})
