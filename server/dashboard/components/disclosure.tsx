import type { PropsWithChildren } from 'hono/jsx'

/** A button that opens a form, or whatever else is not wanted at once. Works without scripts. */
export function Disclosure(
  props: PropsWithChildren<{ summary: string; isOpen?: boolean; kind?: 'primary' | 'plain'; id?: string }>,
) {
  return (
    <details class="disclosure" open={props.isOpen} id={props.id}>
      <summary class={`button ${props.kind ?? 'plain'}`}>{props.summary}</summary>
      <div class="panel">{props.children}</div>
    </details>
  )
}
