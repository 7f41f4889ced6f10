import type { PropsWithChildren } from 'hono/jsx'
import type { PageContext } from '../page.ts'
import { fragmentPath } from '../paths.ts'

const EVERY_SECONDS = 20

/**
 * A part of a page that public/live.js keeps fresh: it fetches the page's own address with `?fragment=<name>` (the route answers
 * `reply.fragment(part)`) when `events` (server-sent events) tells of something, and now and then. It says so when it is paused.
 */
export function Live(
  props: PropsWithChildren<{ name: string; page: PageContext; events?: string; everySeconds?: number }>,
) {
  return (
    <div class="live">
      <div
        id={`live-${props.name}`}
        data-live={fragmentPath(props.page.path, props.name)}
        data-events={props.events}
        data-every={String(props.everySeconds ?? EVERY_SECONDS)}
      >
        {props.children}
      </div>
      <p class="live-state" role="status" data-live-state={`live-${props.name}`} hidden></p>
    </div>
  )
}
