import type { PropsWithChildren } from 'hono/jsx'
import { Button } from './form.tsx'

/** Filters of a list: a GET form, so that what is filtered stands in the address. */
export function Filters(props: PropsWithChildren<{ action: string; label: string; isFiltered: boolean }>) {
  return (
    <form method="get" action={props.action} class="form row filters" aria-label={props.label}>
      {props.children}
      <Button>Filter</Button>
      {props.isFiltered && (
        <a class="button quiet" href={props.action}>
          Clear
        </a>
      )}
    </form>
  )
}
