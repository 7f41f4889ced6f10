import { failure } from '../helpers/known-failures.ts'

/** MCP over HTTP: sessions, streams, headers, sign-in, and what clients do with all that. */
export const MCP_FAILURES = [
  failure('M64', 'a restart of the server ends a session for good: the client is told 404 and never connects anew', {
    'mcp/connections.test.ts': ['goes on when the server was restarted under it, without connecting anew (N)'],
  }),
  failure('M65', 'the id of a session that is gone is answered with 401, as if the token were bad', {
    'mcp/connections.test.ts': [
      'ignores the id of a session that it never opened, with initialize, a list and a call',
      'is refused with 401 for its token alone, never for a session that was lost',
    ],
  }),
  failure('M66', 'metadata of OAuth, or a page of HTML in its place, makes a client with a token sign in', {
    'mcp/sign-in.test.ts': [
      'is led nowhere: it ends with an error after a few requests, and no browser opens (N)',
      'finds 401 and a plain challenge first, whatever it asks for, and JSON where others have metadata',
    ],
    'http/errors.test.ts': ['what does not exist is a JSON 404, well-known addresses and other methods too'],
  }),
  failure(
    'M68',
    'a helper that computes headers is started without the folder of its plugin',
    {
      'plugin/manifest.test.ts': [
        'the marketplace is the repository itself, and its plugin is the one that the manifest names',
      ],
      'plugin/connect.test.ts': [
        'checks the token, writes .mcp.json for this user only, trusts this agent, and says what to do next; disconnect undoes all',
      ],
      'scripts/listener-surroundings.test.ts': [
        'gets a repository that tries everything sends no byte, by name, by link or by pipe',
      ],
    },
    'we have no such helper: the plugin brings no server, connect writes headers, and a helper in .mcp.json is not run',
  ),
  failure('M69', 'a call that takes long is cut off, and its answer with it', {
    'mcp/streams.test.ts': [
      'that is long in coming is never silent for long, with and without progress',
      'to a wait comes within a minute when no time was asked for, and what comes between two waits is not missed',
    ],
    'mcp/wait.test.ts': ['sends its first byte within a second though the client asked for no progress (N)'],
  }),
  failure('M70', 'a stream that nothing is sent on never gets its headers', {
    'mcp/refusals.test.ts': ['with a token, methods other than POST are answered 405'],
    'mcp/connections.test.ts': ['asks once for the stream that it is refused, and lives on (N)'],
  }),
  failure('M72', 'an answer that was begun by hand is begun a second time by the framework', {
    'mcp/streams.test.ts': [
      'is begun once and ended once, whatever it answers, and at whatever moment its client goes away',
    ],
  }),
  failure('M74', 'two instances: the one that did not open a session does not know it', {
    'mcp/connections.test.ts': ['is served by two instances in turn (N)'],
  }),
  failure('M75', 'initialize is refused because it carries the id of an old session', {
    'mcp/connections.test.ts': ['ignores the id of a session that it never opened, with initialize, a list and a call'],
  }),
  failure('M76', 'the revision is misread for the white space around it, or guessed where it is missing', {
    'mcp/connections.test.ts': [
      'reads the revision of a call with white space around it, and refuses one that its header does not tell',
    ],
  }),
  failure('M78', 'a refused stream is asked for without end; an event without data is taken for an answer', {
    'mcp/connections.test.ts': ['asks once for the stream that it is refused, and lives on (N)'],
    'plugin/upstream.test.ts': [
      'is answered by its result, not by an event without data, a comment or what is no message before it',
      'is tried once and fails in words: N',
    ],
  }),
  failure('M79', 'a server that refuses every token is asked again and again', {
    'mcp/sign-in.test.ts': ['is led nowhere: it ends with an error after a few requests, and no browser opens (N)'],
    'plugin/upstream.test.ts': ['is tried once and fails in words: N'],
    'scripts/listener-exits.test.ts': ['the final answers of the server, asked twice, each with its sentence'],
  }),
  failure('M80', 'who has no token is told that the method is wrong, and nothing of a token', {
    'mcp/sign-in.test.ts': [
      'finds 401 and a plain challenge first, whatever it asks for, and JSON where others have metadata',
    ],
    'mcp/refusals.test.ts': ['nobody enters without a token, by whatever method'],
  }),
  failure(
    'M81',
    'a client that has signed in calls without what it was given, as the resource had another name',
    {
      'mcp/sign-in.test.ts': [
        'works with a token of ours in place of one of a sign-in (N)',
        'finds 401 and a plain challenge first, whatever it asks for, and JSON where others have metadata',
      ],
    },
    'nobody can sign in here: there are tokens only, so no name of a resource is given',
  ),
  failure(
    'M82',
    'two servers of one name: one hides the other, and nobody sees as whom he acts',
    {
      'mcp/tools.test.ts': ['an empty inbox costs a model next to nothing'],
      'scripts/mcp-json.test.ts': [
        'parents count up to the repository root and no further; the nearest entry of a name wins',
      ],
      'plugin/connect.test.ts': [
        'does not take the place of another server or agent in passing; --replace does, and disconnect puts it back',
      ],
      'plugin/cli.test.ts': ['several identities in .mcp.json are told apart with --as'],
    },
    'which entries of a client’s own configuration hide ours is the client’s to list',
  ),
  failure('M83', 'an answer that comes after its client gave up is thrown away, and its messages count as read', {
    'mcp/connections.test.ts': ['whose client gave up before the answer came loses no message (N)'],
    'mcp/wait.test.ts': ['ends when its client goes away, and keeps no message from the next wait (N)'],
  }),
]
