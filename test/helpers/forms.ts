import assert from 'node:assert/strict'
import type { Browser, PageAnswer } from './dashboard.ts'

/** A POST form of a page, as a browser without scripts would send it untouched. */
export interface PageForm {
  action: string
  fields: Record<string, string>
}

/** Every POST form of a page, with the values that stand in it. */
export function listForms(html: string): PageForm[] {
  return Array.from(html.matchAll(/<form ([^>]*)>([\s\S]*?)<\/form>/g), ([, head = '', body = '']) => ({
    isPost: /method="post"/.test(head),
    action: attribute(head, 'action'),
    fields: { ...readInputs(body), ...readSelects(body) },
  })).filter(({ isPost }) => isPost)
}

/** Fills in a form of the page and sends it: only what the page has can be sent. */
export async function submit(
  browser: Browser,
  page: PageAnswer,
  action: string | RegExp,
  values: Record<string, string> = {},
): Promise<PageAnswer> {
  const form = findForm(page, action)
  for (const name of Object.keys(values)) assert.ok(name in form.fields, `the form ${form.action} has no ${name}`)
  return await browser.post(form.action, { ...form.fields, ...values })
}

export function findForm(page: PageAnswer, action: string | RegExp): PageForm {
  const forms = listForms(page.html)
  const form = forms.find((each) => (typeof action === 'string' ? each.action === action : action.test(each.action)))
  assert.ok(form, `no form ${action}, only ${forms.map((each) => each.action).join(' ')}`)
  return form
}

function readInputs(body: string): Record<string, string> {
  const inputs = Array.from(body.matchAll(/<input ([^>]*)>/g), ([, tag = '']) => tag)
  return Object.fromEntries(inputs.map((tag) => [attribute(tag, 'name'), attribute(tag, 'value')]))
}

/** The selected option, else the first. */
function readSelects(body: string): Record<string, string> {
  const selects = Array.from(body.matchAll(/<select ([^>]*)>([\s\S]*?)<\/select>/g))
  return Object.fromEntries(
    selects.map(([, head = '', options = '']) => {
      const tags = Array.from(options.matchAll(/<option ([^>]*)>/g), ([, tag = '']) => tag)
      const chosen = tags.find((tag) => /\bselected\b/.test(tag)) ?? tags[0] ?? ''
      return [attribute(head, 'name'), attribute(chosen, 'value')]
    }),
  )
}

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" }

function attribute(tag: string, name: string): string {
  const [, value = ''] = new RegExp(`(?:^|\\s)${name}="([^"]*)"`).exec(tag) ?? []
  return value.replaceAll(/&(\w+|#39);/g, (whole, entity: string) => ENTITIES[entity] ?? whole)
}
