import type { PropsWithChildren } from 'hono/jsx'
import type { PageContext } from '../page.ts'
import { fragmentPath } from '../paths.ts'

const EVERY_SECONDS = 20

/**
 * A part of a page that public/live.js keeps fresh: it fetches the page's own address with `?fragment=<name>` (the route answers
 * `reply.fragment(part)`) when `events` (server-sent events) tells of something, and now and then. It says so when it is paused.
 * `rows` names what its rows are (marked `data-row`, each with an id): where somebody has scrolled down, new ones are counted and
 * shown on demand. While something in it is marked `data-unsettled` it is asked for more often, at once after that mark has changed.
 */
export function Live(
  props: PropsWithChildren<{ name: string; page: PageContext; events?: string; everySeconds?: number; rows?: string }>,
) {
  return (
    <div class="live">
      <div
        id={`live-${props.name}`}
        data-live={fragmentPath(props.page.path, props.name)}
        data-events={props.events}
        data-rows={props.rows}
        data-every={String(props.everySeconds ?? EVERY_SECONDS)}
      >
        {props.children}
      </div>
      <p class="live-state" role="status" data-live-state={`live-${props.name}`} hidden></p>
    </div>
  )
}
