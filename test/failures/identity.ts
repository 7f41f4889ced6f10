import { failure } from '../helpers/known-failures.ts'

/** Tokens, identity, isolation: T; and what a hostile page or a hostile text gets at: X. */
export const IDENTITY_FAILURES = [
  failure('T84', 'whoever asks for a name that is taken is given the token of who has it', {
    'end-to-end/identity.test.ts': [
      'is not had by asking for its name: a taken one gives no token, and a lost token is replaced without losing mail',
    ],
    'domain/tokens.test.ts': ['a taken name, a bad name, an unknown namespace, agent or token id are refused in words'],
  }),
  failure('T85', 'who starts anew without its token never gets its own name back', {
    'end-to-end/identity.test.ts': [
      'is not had by asking for its name: a taken one gives no token, and a lost token is replaced without losing mail',
    ],
    'plugin/cli-programs.test.ts': [
      'rotates a token: the old one is refused, the new one is the same agent with the same label and life',
    ],
  }),
  failure('T87', 'a tool takes the word of its caller for who the caller is', {
    'end-to-end/identity.test.ts': [
      'is said by its token alone: a sender that a call names is refused, and the server stamps its own',
    ],
    'db/attack.test.ts': [
      'a sender cannot be forged: neither its id, nor its namespace, nor the name that a wake shows',
    ],
  }),
  failure('T88', 'an empty list means everything; a test run overwrites the configuration of its user', {
    'domain/inbox-counts.test.ts': ['an empty list of ids is no message, and never all of them'],
    'runner/runner.test.ts': [
      'has a HOME of its own, knows no token of its user, and fails when something is written there',
    ],
    'plugin/connect.test.ts': [
      'writes nothing for a token that the server refuses, is no token, or that it cannot ask about',
    ],
  }),
  failure('T89', 'a real token is committed in an example', {
    'tidy/habits.ts': ['no file holds a secret or what looks like one'],
    'tidy/rules.test.ts': ['are each broken by something that is planted below', 'name N when N is planted'],
  }),
  failure('T90', 'a key stands in a command line, which everybody on the machine can read, or in an error', {
    'scripts/listener-surroundings.test.ts': [
      'shows its token to nobody: not in argv, not in what it writes, not in an address',
    ],
    'scripts/codex-hook.test.ts': [
      'starts one listener for a thread, its token in no command line, which wakes it and ends with it, leaving nothing',
    ],
    'plugin/cli.test.ts': [
      'watch prints the lines of a listener, starts it with no token in a command line, and ends with a signal',
      'a token that is refused is exit 4, and stands in no output',
    ],
    'plugin/connect.test.ts': ['refuses a token on the command line, and says that it is known now'],
    'plugin/bridge.test.ts': ['a token that is refused says so, and stands in no answer'],
    'config.test.ts': ['an error never repeats a value, which may be a secret'],
    'main.test.ts': [
      'a wrong variable is named, and its value is not repeated',
      'refuses a wrong password without repeating it',
    ],
  }),
  failure(
    'T91',
    'who calls from the same machine, or through its proxy, needs no token; a token is compared letter by letter',
    {
      'http/auth.test.ts': [
        'every call needs a token, also from this machine, and whatever a proxy says of an address',
        'are 20 a minute for each address, whatever X-Forwarded-For says, while a valid token goes on',
      ],
      'domain/tokens.test.ts': ['only the SHA-256 of a token is stored'],
    },
    'no time is measured: a token is looked up by its hash, and no text of it is compared with another',
  ),
  failure(
    'T92',
    'a name that was drawn is taken already, and its owner is overwritten',
    {
      'domain/names.test.ts': [
        'of many who take one name at once exactly one has it; the others hear so, and overwrite nothing',
      ],
    },
    'no name is drawn, so none is drawn anew',
  ),
  failure('T93', 'two agents of one project get each other’s messages', {
    'end-to-end/identity.test.ts': ['keeps two agents of one project apart: each hears of its own messages only'],
    'scripts/listener-surroundings.test.ts': ['listens for two agents of one file keeps them apart'],
    'scripts/hook.test.ts': ['is every trusted identity of the project, in one notice'],
  }),
  failure('T95', 'a message to a name that nobody has is stored for nobody', {
    'mcp/refusals.test.ts': ['an unknown recipient is answered with the nearest names, and nothing is stored (N)'],
    'http/routes/messages.test.ts': ['POST to an unknown name is 404 with the nearest names and stores nothing'],
    'domain/messages.test.ts': [
      'an unknown recipient, one of another namespace and a list with one of them are refused whole',
    ],
  }),
  failure('T96', 'a reply goes to another agent of the same name, or back to who wrote it', {
    'end-to-end/identity.test.ts': [
      'decides where a reply goes: to who sent the message, whoever else is called so, and under its new name (N)',
    ],
  }),
  failure(
    'X98',
    'a page opens a socket here; one who has not joined is believed; a right that ended while it was awaited counts',
    {
      'realtime/handshake.test.ts': ['a foreign Host or Origin is refused before the apikey is looked at'],
      'http/guards.test.ts': [
        'a page of another site is refused with 403, also with a preflight',
        'a name that was made to point here is refused before authentication, on every path and method',
      ],
      'realtime/attack.test.ts': ['no client can make a listener believe in a message'],
      'realtime/channel.test.ts': [
        'what a client broadcasts to a N channel is refused where it asks, and presence always',
        'a wake that comes after exp is not delivered, however late the sweep',
      ],
      'realtime/changes.test.ts': [
        "a token of another agent that is outrun by the next one, or by a leave, shows none of that agent's rows",
      ],
      'domain/lease.test.ts': ['a token that is revoked while its renewal waits is refused, and makes nobody wakeable'],
    },
  ),
  failure(
    'X100',
    'a text with the tags of a client’s own reminders is taken for one',
    {
      'mcp/fence.test.ts': ['holds against N'],
      'mcp/tools.test.ts': ['a hostile text is fenced wherever it is shown, by digits that no earlier answer had'],
      'scripts/hook.test.ts': ['nothing but counts and names that pass the pattern is told, whatever the server sends'],
      'plugin/manifest.test.ts': [
        'skills and commands state facts: nothing tells a model to act on text of others by itself',
      ],
    },
    'a sender is not warned: a text about such tags is a text, and what reads it stands in a fence',
  ),
  failure('X101', 'a text holds the end of the fence around it, and what follows passes for ours', {
    'mcp/fence.test.ts': ['holds against N', 'has fresh digits for every answer'],
    'mcp/tools.test.ts': ['a hostile text is fenced wherever it is shown, by digits that no earlier answer had'],
    'plugin/cli-frame.test.ts': ['cannot close their frame, whatever they hold'],
    'plugin/cli.test.ts': [
      'words of others stand in a frame of fresh digits, and nothing in them can close it or move a cursor',
    ],
  }),
  failure('X103', 'a mark of a message, such as one that asks for an answer, passes the rules for who may send what', {
    'domain/attention.test.ts': ['no mark of a message opens the gate, passes the rate or gets into a full inbox'],
  }),
]
