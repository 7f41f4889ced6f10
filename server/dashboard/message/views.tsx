/** The two ways to see what was said. */
export function MessageViews(props: { namespace: string; view: 'messages' | 'threads' }) {
  const views = { messages: 'All messages', threads: 'Threads' }
  return (
    <nav class="views" aria-label="Views of messages">
      {Object.entries(views).map(([view, label]) => (
        <a href={`/n/${props.namespace}/${view}`} aria-current={view === props.view ? 'page' : undefined}>
          {label}
        </a>
      ))}
    </nav>
  )
}
