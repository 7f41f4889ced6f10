import { createHash } from 'node:crypto'

/**
 * A command or snippet with a button that copies it; without scripts there is no button, and a click selects all of it.
 * `block` keeps line ends.
 */
export function Copy(props: { text: string; label?: string; block?: boolean; id?: string }) {
  const id = props.id ?? `copy-${createHash('sha256').update(props.text).digest('hex').slice(0, 8)}`
  const label = props.label ?? 'Copy'
  return (
    <div class={props.block ? 'copy block' : 'copy'}>
      {props.block ? (
        <pre id={id} tabindex={0}>
          {props.text}
        </pre>
      ) : (
        <code id={id}>{props.text}</code>
      )}
      <button
        type="button"
        class="button quiet small"
        data-copy={id}
        hidden
        aria-label={`${label}: ${firstLine(props.text)}`}
      >
        {label}
      </button>
    </div>
  )
}

/** A secret that is shown this once; public/secret.js asks when the page is left before it was copied. */
export function Secret(props: { value: string; label: string }) {
  return (
    <div class="secret" data-secret>
      <p class="secret-label" id="secret-label">
        {props.label}
      </p>
      <div class="copy">
        <code id="secret" class="secret-value">
          {props.value}
        </code>
        <button type="button" class="button primary small" data-copy="secret" hidden>
          Copy
        </button>
      </div>
    </div>
  )
}

function firstLine(text: string): string {
  const [line = ''] = text.split('\n', 1)
  return line.length > 60 ? `${line.slice(0, 60)}…` : line
}
