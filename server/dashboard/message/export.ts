import type { ServerResponse } from 'node:http'
import type { ExportedMessage } from '../../domain/message-list.ts'
import { securityHeaders } from '../headers.ts'
import type { DashboardDeps } from '../page.ts'

export interface Export {
  /** Of the file. */
  name: string
  /** Of `pages`, taken already. */
  first: IteratorResult<ExportedMessage[], void>
  pages: AsyncGenerator<ExportedMessage[]>
}

const BROKEN = { error: 'The export broke off here: what is older is missing. Export again.' }

/** Exports under way; `close` ends them, so that none holds a server that closes. */
export function createExports(log: Pick<DashboardDeps['log'], 'warn'>) {
  const open = new Set<ServerResponse>()
  let isClosing = false

  /**
   * An array, one message a line, as fast as it is taken. Where it breaks its last element says so, since by then the status has
   * been sent: `{"error": …}`.
   */
  async function send(response: ServerResponse, { name, first, pages }: Export): Promise<void> {
    open.add(response)
    response.writeHead(200, {
      ...securityHeaders(),
      'cache-control': 'no-store',
      'content-type': 'application/json; charset=utf-8',
      'content-disposition': `attachment; filename="${name}"`,
      'x-content-type-options': 'nosniff',
    })
    const write = createWriter(response)
    try {
      for (let page = first; !page.done && !response.destroyed; page = await pages.next()) {
        await write(page.value)
        if (isClosing) throw new Error('the server is closing')
      }
    } catch (error) {
      log.warn({ err: error }, 'an export of messages broke off')
      await write([BROKEN])
    } finally {
      open.delete(response)
      await pages.return(undefined)
    }
    response.end(write.isEmpty() ? '[]\n' : '\n]\n')
  }

  return {
    send,
    close() {
      isClosing = true
      // Whoever takes nothing would never hear of it.
      for (const response of open) if (response.writableNeedDrain) response.destroy()
    },
  }
}

function createWriter(response: ServerResponse) {
  let separator = '[\n'
  async function write(items: object[]): Promise<void> {
    for (const item of items) {
      const isRoom = response.write(separator + JSON.stringify(item))
      separator = ',\n'
      if (!isRoom && !response.destroyed) await roomIn(response)
    }
  }
  return Object.assign(write, { isEmpty: () => separator === '[\n' })
}

/** When more can be written, or nothing ever will be. */
function roomIn(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done).off('close', done)
      resolve()
    }
    response.on('drain', done).on('close', done)
  })
}
