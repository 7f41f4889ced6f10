export { Copy, Secret } from './copy.tsx'
export { Button, ButtonLink, Choice, Confirm, Field, Form } from './form.tsx'
export { describePause, Layout, type Tab } from './layout.tsx'
export { Live } from './live.tsx'
export {
  Card,
  type Column,
  Empty,
  Facts,
  Notice,
  Pager,
  Reach,
  type Reachable,
  Section,
  State,
  Table,
} from './parts.tsx'
export { Text } from './text.tsx'
export { formatAbsolute, formatRelative, Time } from './time.tsx'
