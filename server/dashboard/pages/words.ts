import type { Member, MemberRole } from '../../db/scope.ts'

/** Fields of names have neither pattern nor maxlength: the server's sentence says more, and nothing is cut in silence. */

const NUMBERS = new Intl.NumberFormat('en')

/** `1,204` */
export function formatNumber(amount: number): string {
  return NUMBERS.format(amount)
}

/** `1 token`, `1,204 tokens` */
export function count(amount: number, noun: string, plural = `${noun}s`): string {
  return `${formatNumber(amount)} ${amount === 1 ? noun : plural}`
}

/** `an owner` */
export function withArticle(role: MemberRole): string {
  return role === 'member' ? 'a member' : `an ${role}`
}

export function isAdmin({ role }: Pick<Member, 'role'>): boolean {
  return role !== 'member'
}

export function isOwner({ role }: Pick<Member, 'role'>): boolean {
  return role === 'owner'
}
