import { randomUUID } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import { Button, Choice, Field, Form, Notice } from '../components/index.ts'

const DAY_SECONDS = 86_400

/** How long a new token lives. */
export const LIVES = [
  { value: '7', label: '7 days', seconds: 7 * DAY_SECONDS },
  { value: '30', label: '30 days', seconds: 30 * DAY_SECONDS },
  { value: '90', label: '90 days', seconds: 90 * DAY_SECONDS },
  { value: '365', label: '1 year', seconds: 365 * DAY_SECONDS },
  { value: 'never', label: 'It never ends', seconds: undefined },
] as const
export const DEFAULT_LIFE = '30'

/** How long a token still works after it was rotated. */
export const OVERLAPS = [
  { value: '0', label: 'no longer: it ends now' },
  { value: '600', label: '10 minutes more' },
  { value: '3600', label: '1 hour more' },
  { value: '86400', label: '24 hours more' },
] as const

export interface TokenFormValues {
  agent: string
  label: string
  life: string
}

export interface TokenFormProps {
  request: FastifyRequest
  member: Member
  /** Names to choose from; null: there are so many that the name is typed. */
  agents: string[] | null
  values: TokenFormValues
  problem?: { message: string; field: 'agent' | 'label' }
}

/** The form of a new token. Its id makes a second submit of the same form harmless. */
export function TokenForm({ request, member, agents, values, problem }: TokenFormProps) {
  const errorOf = (field: string) => (problem?.field === field ? problem.message : undefined)
  return (
    <Form action={`/n/${member.namespace}/tokens`} csrf={request.page.csrf} fields={{ id: randomUUID() }}>
      {agents !== null && errorOf('agent') && (
        <Notice kind="bad">
          <p>{errorOf('agent')}</p>
        </Notice>
      )}
      {agents === null ? (
        <Field name="agent" label="Agent" value={values.agent} error={errorOf('agent')} required mono />
      ) : (
        <Choice name="agent" label="Agent" options={agents.map(toOption)} value={values.agent} />
      )}
      <Field
        name="label"
        label="Label"
        value={values.label}
        hint="Where it will be used, such as lap-3 or CI: how you will know it again."
        error={errorOf('label')}
        required
      />
      <Choice
        name="life"
        label="Ends after"
        options={LIVES}
        value={values.life}
        hint="When it ends, the agent is disconnected until it gets another one."
      />
      <div class="actions">
        <Button kind="primary">Create token</Button>
      </div>
    </Form>
  )
}

function toOption(name: string) {
  return { value: name, label: name }
}
