import { failure } from '../helpers/known-failures.ts'

const CODEX_ALONE =
  'writes into this folder and our own one only, and says what belongs into the configuration of Codex instead of writing it'
const NO_TOML = 'connect edits JSON only: what belongs into TOML it says, and a person puts it there'

/** What an installer does to configuration: I; hooks: H; and E, seen at an earlier installer, of which a listener has its part. */
export const INSTALLER_FAILURES = [
  failure(
    'I119',
    'an entry that is there already, in another form, is written a second time, and the file is broken',
    {
      'plugin/connect.test.ts': [CODEX_ALONE, 'leaves a file alone that it cannot parse, and names it'],
      'plugin/connect-edits.test.ts': [
        'adds the entry, changes no other value, and undoing it gives the same bytes: any JSON with comments',
        'can be made again upon its own result',
        'is refused where the file N, and the file is named',
      ],
    },
    NO_TOML,
  ),
  failure('I120', 'a configuration that is found and not understood is passed over in silence', {
    'plugin/connect.test.ts': [CODEX_ALONE, 'leaves a file alone that it cannot parse, and names it'],
  }),
  failure('I122', 'the servers of others go when ours is added', {
    'plugin/connect.test.ts': [
      'adds to a file with comments, other servers, a byte order mark and CRLF, says that clients read plain JSON, and gives the same bytes back',
      'does not take the place of another server or agent in passing; --replace does, and disconnect puts it back',
      'undone after edits of others takes out our part only, everywhere',
    ],
    'plugin/connect-safety.test.ts': [
      'what somebody else writes to .mcp.json while connect is at work is kept',
      'a failure in the middle puts back what an earlier connect had written',
    ],
    'plugin/connect-edits.test.ts': [
      'undone after somebody else has edited the file takes out our part only: any JSON with comments',
    ],
  }),
  failure(
    'I123',
    'a session that runs writes its settings anew, and our hooks are gone from them',
    {
      'plugin/manifest.test.ts': [
        'the monitor and the hooks start programs that git holds, and no default place adds others',
      ],
      'plugin/connect.test.ts': [CODEX_ALONE],
      'plugin/connect-edits.test.ts': [
        'a file that the client has laid out anew and added to keeps what the client added',
      ],
    },
    'our hooks are the plugin’s and stand in no settings; rules of --allow that are lost cost a question, and connect adds them again',
  ),
  failure('I125', 'to install into a folder for a trial changes what the user works with', {
    'plugin/connect.test.ts': [CODEX_ALONE],
    'plugin/connect-record.test.ts': [
      'an agent stays trusted while another project is it, and when the listener had recorded it before',
    ],
  }),
  failure('H127', 'the end of a turn is answered with keys that Codex does not know, and without an end', {
    'scripts/hook.test.ts': [
      'is held up once for each message, with no other keys than Codex takes',
      'is never held up when a hook has just held it up',
      'is never held up where it cannot be remembered',
    ],
  }),
  failure(
    'H128',
    'a client keeps an old version of a plugin and runs the hooks of that one',
    {
      'scripts/hook.test.ts': ['is told when the plugin is older than the server, and of nothing that is no version'],
      'tidy/names.ts': ['all manifests carry the same version'],
    },
    'which version a client runs is its own choice: the session is told that it is an old one',
  ),

  failure('E10', 'an address on a line of its own is cut at its slashes, as if a comment began there', {
    'plugin/connect.test.ts': [
      'adds to a file with comments, other servers, a byte order mark and CRLF, says that clients read plain JSON, and gives the same bytes back',
    ],
    'plugin/connect-edits.test.ts': [
      'can be made again upon its own result',
      'strings that look like comments or commas are not touched',
    ],
  }),
  failure('E11', 'strings that hold what begins a comment, or a comma before a brace, are changed', {
    'plugin/connect-edits.test.ts': [
      'adds the entry, changes no other value, and undoing it gives the same bytes: any JSON with comments',
      'strings that look like comments or commas are not touched',
    ],
  }),
  failure(
    'E12',
    'headers of our entry in a table of their own are defined twice',
    { 'plugin/connect.test.ts': [CODEX_ALONE] },
    NO_TOML,
  ),
]
