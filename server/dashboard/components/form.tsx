import type { Child, PropsWithChildren } from 'hono/jsx'

type ButtonKind = 'primary' | 'plain' | 'danger' | 'quiet'

/** A button of a form; `plain` unless it is the page's one primary action. */
export function Button(props: PropsWithChildren<{ kind?: ButtonKind; name?: string; value?: string; label?: string }>) {
  const { kind = 'plain', name, value, label } = props
  return (
    <button type="submit" class={`button ${kind}`} name={name} value={value} aria-label={label}>
      {props.children}
    </button>
  )
}

/** A link that looks like a button, for what changes nothing. */
export function ButtonLink(props: PropsWithChildren<{ href: string; kind?: ButtonKind; download?: boolean }>) {
  return (
    <a class={`button ${props.kind ?? 'plain'}`} href={props.href} download={props.download ? '' : undefined}>
      {props.children}
    </a>
  )
}

/** A POST form with its token. `fields` are hidden. */
export function Form(
  props: PropsWithChildren<{
    action: string
    csrf: string
    fields?: Record<string, string>
    /** `row`: field and button beside each other where there is room. */
    layout?: 'stack' | 'row' | 'inline'
    id?: string
  }>,
) {
  return (
    <form method="post" action={props.action} class={`form ${props.layout ?? 'stack'}`} id={props.id}>
      <input type="hidden" name="csrf" value={props.csrf} />
      {Object.entries(props.fields ?? {}).map(([name, value]) => (
        <input type="hidden" name={name} value={value} />
      ))}
      {props.children}
    </form>
  )
}

export interface FieldProps {
  name: string
  label: string
  /** Unique on the page; the name unless given. */
  id?: string
  value?: string
  type?: 'text' | 'search' | 'email' | 'number' | 'date'
  hint?: Child
  error?: string | undefined
  required?: boolean
  maxLength?: number
  placeholder?: string
  autocomplete?: string
  /** For names and codes. */
  mono?: boolean
  hideLabel?: boolean
  /** Id of a datalist with what fits. */
  list?: string
}

/** A labelled input; hint and error are tied to it for screen readers, and the one that was refused has the focus. */
export function Field(props: FieldProps) {
  const { id = props.name, error } = props
  const notes = [props.hint ? `${id}-hint` : '', error ? `${id}-error` : ''].filter(Boolean).join(' ')
  return (
    <div class="field">
      <label for={id} class={props.hideLabel ? 'sr' : undefined}>
        {props.label}
      </label>
      <input
        id={id}
        name={props.name}
        type={props.type ?? 'text'}
        value={props.value}
        class={props.mono ? 'mono' : undefined}
        required={props.required}
        maxlength={props.maxLength}
        placeholder={props.placeholder}
        autocomplete={props.autocomplete ?? 'off'}
        list={props.list}
        autocapitalize={props.mono ? 'none' : undefined}
        spellcheck={props.mono ? false : undefined}
        aria-invalid={error ? 'true' : undefined}
        aria-describedby={notes || undefined}
        autofocus={error ? true : undefined}
      />
      {props.hint && (
        <p class="hint" id={`${id}-hint`}>
          {props.hint}
        </p>
      )}
      {error && (
        <p class="field-error" id={`${id}-error`}>
          {error}
        </p>
      )}
    </div>
  )
}

/** One of a few, as a select with its label. */
export function Choice(props: {
  name: string
  label: string
  options: readonly { value: string; label: string }[]
  id?: string
  value?: string | undefined
  hint?: Child
  hideLabel?: boolean
}) {
  const { id = props.name } = props
  return (
    <div class="field">
      <label for={id} class={props.hideLabel ? 'sr' : undefined}>
        {props.label}
      </label>
      <select id={id} name={props.name} aria-describedby={props.hint ? `${id}-hint` : undefined}>
        {props.options.map(({ value, label }) => (
          <option value={value} selected={value === props.value}>
            {label}
          </option>
        ))}
      </select>
      {props.hint && (
        <p class="hint" id={`${id}-hint`}>
          {props.hint}
        </p>
      )}
    </div>
  )
}

/**
 * A destructive action: the first click opens what will happen (the children), the second one does it. Works without scripts.
 */
export function Confirm(
  props: PropsWithChildren<{
    /** On the button that opens it: `Revoke`. */
    summary: string
    /** On the one that does it: `Revoke now`. */
    button: string
    action: string
    csrf: string
    fields?: Record<string, string>
    /** What it is about, for screen readers: `Revoke backend on lap-3`. */
    label?: string
    kind?: 'danger' | 'primary'
    /** Of those with the same name one is open at a time. */
    group?: string
    /** More fields, before the button. */
    inputs?: Child
  }>,
) {
  return (
    <details class="confirm" name={props.group}>
      <summary class={`button ${props.kind === 'primary' ? 'plain' : 'danger-quiet'}`} aria-label={props.label}>
        {props.summary}
      </summary>
      <div class="confirm-body">
        <div class="confirm-text">{props.children}</div>
        <Form action={props.action} csrf={props.csrf} fields={props.fields ?? {}}>
          {props.inputs}
          <div class="actions">
            <Button kind={props.kind ?? 'danger'}>{props.button}</Button>
          </div>
        </Form>
      </div>
    </details>
  )
}
