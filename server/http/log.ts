import type { IncomingMessage } from 'node:http'
import { type DestinationStream, type Logger, pino } from 'pino'

/** Tokens and JWTs, wherever one may have got into a line: a URL, an error of a library. */
const SECRETS = /\bpc_[\w-]{20,}|\beyJ[\w-]+\.[\w-]+\.[\w-]+/g

/** The server's log: JSON lines without host name, headers, query strings or tokens, written to `destination` (stderr). */
export function createLogger(
  level: string,
  destination: DestinationStream = pino.destination({ fd: 2, sync: true }),
): Logger {
  return pino(
    {
      level,
      base: null,
      redact: ['authorization', '*.authorization', '*.*.authorization', 'token', '*.token', '*.password'],
      serializers: { err: describeError, req: describeRequest },
      hooks: { streamWrite: (line) => line.replaceAll(SECRETS, '[redacted]') },
    },
    destination,
  )
}

/** What stands in these paths signs somebody in. */
const CODE_PATHS = /^(\/(?:login|invite)\/)[^/]+/

function describeRequest(request: Pick<IncomingMessage, 'method' | 'url'>): object {
  return { method: request.method, path: request.url?.split('?', 1)[0]?.replace(CODE_PATHS, '$1[redacted]') }
}

/** Of a database error neither the row nor the parameters: they hold the text of messages. */
function describeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return String(error)
  const { code } = error as { code?: unknown }
  const cause = error.cause === undefined || depth > 2 ? {} : { cause: describeError(error.cause, depth + 1) }
  return {
    type: error.name,
    ...(code === undefined ? {} : { code }),
    message: error.message,
    stack: error.stack,
    ...cause,
  }
}
