import { asMember, type Member, type PersonScope } from '../../db/scope.ts'
import { type ErrorCode, PatchcordError } from '../../errors.ts'

import { reword } from '../wording.ts'

/** What a person can put right in the form itself. */
const BESIDE_THE_FORM: readonly ErrorCode[] = ['invalid', 'conflict']

export type Tried<T> = { value: T; refusal: null } | { value: null; refusal: Refusal }

/** Why a form was refused, as a sentence to stand beside it. */
export interface Refusal {
  message: string
  status: number
  code: ErrorCode
}

/** The value, or the refusal that belongs beside the form; any other error is thrown on, for the page of errors. */
export async function tryForm<T>(work: Promise<T>, more: readonly ErrorCode[] = []): Promise<Tried<T>> {
  try {
    return { value: await work, refusal: null }
  } catch (thrown) {
    if (!(thrown instanceof PatchcordError) || ![...BESIDE_THE_FORM, ...more].includes(thrown.code)) throw thrown
    const error = reword(thrown)
    const message = [error.message, error.hint].filter(Boolean).join(' ')
    return { value: null, refusal: { message, status: error.status, code: error.code } }
  }
}

/** Who I am in a namespace. Throws signed_out, or not_found for one that is not mine. */
export async function getMember(scope: PersonScope, namespace: string): Promise<Member> {
  return await asMember(scope, namespace, async (_sql, me) => me)
}

/** A parameter of the address: nothing, what is empty and what came twice is undefined. */
export function readQuery(query: unknown, name: string): string | undefined {
  const record = (query ?? {}) as Record<string, unknown>
  const value = Object.hasOwn(record, name) ? record[name] : undefined
  return typeof value === 'string' && value !== '' ? value : undefined
}

export interface InNamespace {
  Params: { namespace: string }
}
