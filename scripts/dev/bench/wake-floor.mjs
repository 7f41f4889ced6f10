// The least that a wake can be, for wake.ts. As `server` it stores a row, sends a frame about it and answers, as a Patchcord server
// does with a message; as `listener URL` it prints a line for each frame, as a listener does. Beyond that they do nothing.
import { once } from 'node:events'
import { createServer } from 'node:http'
import postgres from 'postgres'
import { WebSocket, WebSocketServer } from 'ws'

const [role, url = ''] = process.argv.slice(2)
/** As many as a Patchcord server has. */
const CONNECTIONS = 10

if (role === 'server') await serve()
else listen(url)

/** Where its Postgres is comes as the first message of its parent, which is told the port. */
async function serve() {
  const [target] = await once(process, 'message')
  const sql = postgres({ ...target, max: CONNECTIONS, onnotice: () => {} })
  const server = createServer((request, response) => void answer(request, response))
  /** @type {Map<string, import('ws').WebSocket>} */
  const sockets = new Map()
  new WebSocketServer({ server, perMessageDeflate: false }).on('connection', (socket, { url: path = '' }) => {
    sockets.set(path.slice(1), socket)
    socket.send('{}')
  })

  /** @param {import('node:http').IncomingMessage} request @param {import('node:http').ServerResponse} response */
  async function answer(request, response) {
    try {
      let text = ''
      for await (const chunk of request.setEncoding('utf8')) text += chunk
      const { to, content } = JSON.parse(text)
      const [row] = await sql`insert into bench.floor (to_agent, content) values (${to}, ${content}) returning id`
      const committedAt = Number(process.hrtime.bigint()) / 1e6
      const wake = {
        id: row?.id,
        toAgentId: to,
        from: 'sender',
        to,
        namespace: 'bench',
        kind: 'report',
        urgency: 'normal',
      }
      sockets.get(to)?.send(JSON.stringify({ ref: null, event: 'broadcast', topic: `wake:${to}`, payload: wake }))
      response
        .writeHead(201, { 'content-type': 'application/json' })
        .end(JSON.stringify({ message_id: row?.id, committedAt }))
    } catch (error) {
      response.writeHead(500).end(String(error))
    }
  }

  await once(server.listen(0, '127.0.0.1'), 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the floor listens on no port')
  process.send?.(address.port)
}

/** The first frame says that it is connected. @param {string} address */
function listen(address) {
  new WebSocket(address, { perMessageDeflate: false }).on('message', (data) => {
    const { payload } = JSON.parse(String(data))
    process.stdout.write(payload ? `PATCHCORD: 1 new from ${payload.from}\n` : 'connected\n')
  })
}
