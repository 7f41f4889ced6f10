import { Copy } from '../components/index.ts'
import { listSnippets, type SnippetInput } from './token-snippets.ts'

/** What to paste where, for each client; the first one is open. */
export function Snippets(props: SnippetInput) {
  return (
    <div class="snippets">
      {listSnippets(props).map(({ id, client, steps }, index) => (
        <details class="snippet" id={`client-${id}`} open={index === 0}>
          <summary>{client}</summary>
          <ol class="snippet-steps">
            {steps.map(({ say, text, file }, step) => (
              <li>
                <p>{say}</p>
                {file && <p class="file">{file}</p>}
                <Copy text={text} block={text.includes('\n')} id={`snippet-${id}-${step}`} />
              </li>
            ))}
          </ol>
        </details>
      ))}
    </div>
  )
}
