import { HookServer } from '../../test/scripts/hook-process.ts'

/**
 * The servers of `npm run bench:hook`, in a process of their own: beside the measurement they would slow down what it
 * measures. Prints one line of JSON, `{"answering": "http://…", "empty": "http://…", "silent": "http://…"}`, and ends with its stdin.
 */

const ANSWER_MS = 5

const [answering, empty, silent] = await Promise.all([HookServer.open(), HookServer.open(), HookServer.open()])
for (const server of [answering, empty]) server.delayMs = ANSWER_MS
// One message waits, so that there is something to say.
answering.deliver('alice')
for (const path of ['/api/inbox', '/api/presence', '/api/agents', '/health']) silent.answers[path] = 'hang'
console.log(JSON.stringify({ answering: answering.origin, empty: empty.origin, silent: silent.origin }))
process.stdin.on('end', () => process.exit()).resume()
