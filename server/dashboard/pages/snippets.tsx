import type { PropsWithChildren } from 'hono/jsx'
import { Copy } from '../components/index.ts'
import { listSnippets, type SnippetInput, type SnippetStep } from './token-snippets.ts'

/** What to paste where, for each client; the first one is open. */
export function Snippets(props: SnippetInput) {
  return (
    <div class="snippets">
      {listSnippets(props).map(({ id, client, note, steps }, index) => {
        const numbered = steps.filter((step) => !step.isInstead)
        const instead = steps.filter((step) => step.isInstead)
        return (
          <details class="snippet" id={`client-${id}`} open={index === 0}>
            <summary>{client}</summary>
            {note && <Note>{note}</Note>}
            <ol class="snippet-steps">
              <Steps steps={numbered} id={id} isNumbered={numbered.length > 1} />
            </ol>
            {instead.length > 0 && <Note>In the place of line 2:</Note>}
            {instead.length > 0 && (
              <ul class="snippet-steps">
                <Steps steps={instead} id={`${id}-instead`} />
              </ul>
            )}
          </details>
        )
      })}
    </div>
  )
}

function Note({ children }: PropsWithChildren) {
  return (
    <div class="snippet-steps">
      <p class="soft">{children}</p>
    </div>
  )
}

/** The numbers are text, since a list without marks is told as none by some screen readers. */
function Steps({ steps, id, isNumbered }: { steps: SnippetStep[]; id: string; isNumbered?: boolean }) {
  return steps.map(({ say, text, file }, index) => (
    <li>
      <p>
        {isNumbered && `${index + 1}. `}
        {say}
      </p>
      {file && <p class="file">{file}</p>}
      <Copy text={text} block={text.includes('\n')} id={`snippet-${id}-${index}`} />
    </li>
  ))
}
