import { once } from 'node:events'
import { WebSocket } from 'ws'
import { call } from './app.ts'

const JOIN_MS_MAX = 20_000

export interface Joined {
  /** Text frames as they stood on the wire, from the answer to the join on. */
  frames: string[]
  close(): Promise<void>
}

/** A bare WebSocket that has joined the topic of a token's own agent, as a listener does. */
export async function joinOwnTopic(app: { url: string }, token: string): Promise<Joined> {
  const { json: ticket } = await call(app, 'GET', '/api/realtime/ticket', { token })
  const url = `${app.url.replace('http', 'ws')}${new URL(ticket.realtime_url).pathname}?vsn=1.0.0&apikey=${ticket.apikey}`
  const socket = new WebSocket(url)
  await once(socket, 'open')
  const frames: string[] = []
  socket.on('message', (data) => frames.push(data.toString()))
  const [{ name, config }] = ticket.topics
  const payload = { config, access_token: ticket.jwt }
  const topic = name.startsWith('realtime:') ? name : `realtime:${name}`
  socket.send(JSON.stringify({ topic, event: 'phx_join', payload, ref: '1', join_ref: '1' }))
  const deadline = Date.now() + JOIN_MS_MAX
  while (!frames.some((frame) => frame.includes('"phx_reply"'))) {
    if (Date.now() > deadline) throw new Error('the join was not answered')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  return {
    frames,
    async close() {
      socket.close()
      if (socket.readyState !== WebSocket.CLOSED) await once(socket, 'close')
    },
  }
}
