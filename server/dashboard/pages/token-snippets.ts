/** Where the text of a token would stand, on pages that do not know it any more. */
export const TOKEN_PLACEHOLDER = 'pc_YOUR_TOKEN'
/** What the forms without a token in them read it from. */
export const TOKEN_VARIABLE = 'PATCHCORD_TOKEN'

export interface SnippetInput {
  /** Where the server is reached: origin and path prefix, without a slash at the end. */
  url: string
  /** null: it was shown before, and only its hash is known now. */
  token: string | null
}

export interface Snippet {
  /** For ids and fragments of addresses. */
  id: string
  client: string
  /** Where the lines alone would not do, in a sentence above them. */
  note?: string
  /** In their order; those that are instead of another come last. */
  steps: SnippetStep[]
}

export interface SnippetStep {
  /** What to do with the text, in a sentence. */
  say: string
  text: string
  /** The file that the text belongs into; null for a command. */
  file: string | null
  /** The text holds the token: it is not for git, and not for a screen that others see. */
  isSecret: boolean
  /** In the place of another step, so it has no number. */
  isInstead?: true
}

/** The plugin's folder is on the reader's machine: the server knows nothing of it. */
const CLONE = '/path/to/patchcord'

/** The command that checks the token before it writes anything, and that also lets the listener act for this agent. */
export function connectCommand({ url }: Pick<SnippetInput, 'url'>): string {
  return `patchcord connect --server ${quoteShell(url)}`
}

/** How each client is connected with a token, in the shapes that these clients read today. */
export function listSnippets(input: SnippetInput): Snippet[] {
  return [claudeCode(input), codex(input), cursor(input), gemini(input), vsCode(input), openCode(input)]
}

function claudeCode({ url, token }: SnippetInput): Snippet {
  return {
    id: 'claude-code',
    client: 'Claude Code',
    note: 'The patchcord command comes from npm link in a clone of Patchcord, as its README says. Without the plugin of line 1 the agent is online, but nothing wakes it.',
    steps: [
      command(
        `Once per machine: the plugin, with ${CLONE} as the folder of your clone.`,
        `claude plugin marketplace add ${CLONE} && claude plugin install patchcord@patchcord`,
      ),
      command(
        'In the project: asks for the token, checks it, writes .mcp.json, keeps that out of git, lets the listener wake this session, and allows the tools of Patchcord.',
        `${connectCommand({ url })} --allow`,
      ),
      command('There, too: start Claude Code, and allow the server “patchcord” when it asks.', 'claude'),
      ...claudeCodeByHand({ url, token }),
    ],
  }
}

/** For who would rather not run line 2; only `connect` records which agents the listener may act for. */
function claudeCodeByHand({ url, token }: SnippetInput): SnippetStep[] {
  const entry = { type: 'http', url: endpointOf(url), headers: { Authorization: bearer(token) } }
  // One command, since `read` would take a second line that is pasted with it for the token. In single quotes, so that the shell leaves the variable to Claude Code: the token is no argument that `ps` shows.
  const header = quoteShell(`Authorization: Bearer \${${TOKEN_VARIABLE}}`)
  const add = `claude mcp add --scope project --transport http patchcord ${quoteShell(endpointOf(url))} \\\n  --header ${header}`
  const byHand = fileStep(
    'By hand, for the tools only, since nothing wakes it then: this holds the token, so keep it out of git.',
    '.mcp.json',
    token,
    { mcpServers: { patchcord: entry } },
  )
  const inVariable = command(
    'For the tools only, with the token in a variable, for an .mcp.json that may be committed. Run this, paste the token, which is not shown, press Enter, and start claude in the same terminal.',
    `read -rs ${TOKEN_VARIABLE} && export ${TOKEN_VARIABLE} && \\\n  ${add}`,
  )
  return [
    { ...byHand, isInstead: true },
    { ...inVariable, isInstead: true },
  ]
}

function codex({ url, token }: SnippetInput): Snippet {
  return {
    id: 'codex',
    client: 'Codex',
    note: 'The patchcord command comes from npm link in a clone of Patchcord, as its README says. Without the plugin of line 1 the agent is online, but nothing wakes it.',
    steps: [
      command(
        `Once per machine: the plugin, with ${CLONE} as the folder of your clone.`,
        `codex plugin marketplace add ${CLONE} && codex plugin add patchcord@patchcord`,
      ),
      command('In the project: asks for the token, for the listener and the hooks.', connectCommand({ url })),
      {
        say: 'And this for the tools. It holds the token, so keep it out of git. Codex reads it in folders that it trusts.',
        text: [
          '[mcp_servers.patchcord]',
          `url = ${JSON.stringify(endpointOf(url))}`,
          `http_headers = { "Authorization" = ${JSON.stringify(bearer(token))} }`,
        ].join('\n'),
        file: '.codex/config.toml',
        isSecret: token !== null,
      },
      command(
        'There, too: start Codex, and review the hooks: it skips those that it does not trust, in silence.',
        '/hooks',
      ),
    ],
  }
}

function cursor({ url, token }: SnippetInput): Snippet {
  const entry = { url: endpointOf(url), headers: { Authorization: bearer(token) } }
  const say = `This holds the token, so keep it out of git; or write \${env:${TOKEN_VARIABLE}} in its place and set that where Cursor is started.`
  const step = fileStep(say, '.cursor/mcp.json', token, { mcpServers: { patchcord: entry } })
  return { id: 'cursor', client: 'Cursor', steps: [step] }
}

function gemini({ url, token }: SnippetInput): Snippet {
  const entry = { httpUrl: endpointOf(url), headers: { Authorization: bearer(token) } }
  const say = 'This holds the token, so keep it out of git. Gemini starts no server in a folder that it does not trust.'
  const step = fileStep(say, '.gemini/settings.json', token, { mcpServers: { patchcord: entry } })
  return { id: 'gemini', client: 'Gemini CLI', steps: [step] }
}

function vsCode({ url }: SnippetInput): Snippet {
  const id = 'patchcord-token'
  const headers = { Authorization: `Bearer \${input:${id}}` }
  const inputs = [{ type: 'promptString', id, description: 'Patchcord token', password: true }]
  const say = 'VS Code asks for the token at the first start and keeps it; this file may be committed.'
  const servers = { patchcord: { type: 'http', url: endpointOf(url), headers } }
  return { id: 'vs-code', client: 'VS Code', steps: [fileStep(say, '.vscode/mcp.json', null, { inputs, servers })] }
}

function openCode({ url, token }: SnippetInput): Snippet {
  const headers = { Authorization: bearer(token) }
  const entry = { type: 'remote', url: endpointOf(url), enabled: true, oauth: false, headers }
  const say = `This holds the token, so keep it out of git; or write {env:${TOKEN_VARIABLE}} in its place and set that where opencode is started.`
  const step = fileStep(say, 'opencode.json', token, { mcp: { patchcord: entry } })
  return { id: 'opencode', client: 'OpenCode', steps: [step] }
}

function command(say: string, text: string): SnippetStep {
  return { say, text, file: null, isSecret: false }
}

function fileStep(say: string, file: string, token: string | null, json: unknown): SnippetStep {
  return { say, text: JSON.stringify(json, null, 2), file, isSecret: token !== null }
}

function endpointOf(url: string): string {
  return `${url.replace(/\/+$/, '')}/mcp/bearer`
}

function bearer(token: string | null): string {
  return `Bearer ${token ?? TOKEN_PLACEHOLDER}`
}

/** As one word of a POSIX shell. */
function quoteShell(text: string): string {
  return /^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}
