import { Field } from '../components/index.ts'

const HINT = 'a-z, 0-9, dot, hyphen, underscore; begins and ends with a letter or digit; 40 at most'

/** The name of an agent or a namespace: as it is, or as it was typed and refused, with why. */
export function NameField(props: {
  label: string
  value?: string
  placeholder?: string
  problem?: { name: string; message: string } | undefined
}) {
  const { label, value = '', placeholder, problem } = props
  return (
    <Field
      name="name"
      label={label}
      value={problem?.name ?? value}
      hint={HINT}
      error={problem?.message}
      {...(placeholder !== undefined && { placeholder })}
      required
      mono
    />
  )
}
