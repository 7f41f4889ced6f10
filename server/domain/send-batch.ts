import type { Limits } from '../config.ts'
import type { Sql } from '../db/connect.ts'
import { createLanes } from '../db/lanes.ts'
import type { EntryRows, SendBatch, SendRow } from '../db/scope.ts'
import { attentionLimits } from './attention.ts'

/** More subtransactions than these in one transaction, with those of `realtime.send`, cost every reader of the database. */
const ROWS_MAX = 32
/** Of text: what comes with a long one must not wait for many of its kind. */
const CHARACTERS_MAX = 200_000
/** One core stores these sooner together than two cores do half of them each. */
const SECOND_LANE_ROWS = 4

interface Waiting {
  row: SendRow
  alone: () => Promise<EntryRows>
  resolve(answers: EntryRows): void
  reject(error: unknown): void
}

/** Sends that come at once go together; see `createLanes`. */
export function createSendBatch(sql: Sql, limits: Limits, lanes?: number): SendBatch {
  const waiting: Waiting[] = []
  const limitsText = JSON.stringify(attentionLimits(limits))
  const start = createLanes({
    countWaiting: () => waiting.length,
    anotherAt: SECOND_LANE_ROWS,
    run: () => store(sql, takeBatch(waiting), limitsText),
    lanes,
  })
  return {
    add(row, alone) {
      return new Promise((resolve, reject) => {
        waiting.push({ row, alone, resolve, reject })
        start()
      })
    },
    get waiting() {
      return waiting.length
    },
  }
}

function takeBatch(waiting: Waiting[]): Waiting[] {
  let characters = 0
  const end = waiting.findIndex(({ row }, index) => {
    characters += row.content?.length ?? 0
    return index === ROWS_MAX || (index > 0 && characters > CHARACTERS_MAX)
  })
  return waiting.splice(0, end === -1 ? waiting.length : end)
}

/** Never rejects. What goes alone after all is not waited for. */
async function store(sql: Sql, batch: Waiting[], limits: string): Promise<void> {
  if (batch.length === 1) return await storeAlone(batch)
  const answers = await callBatch(sql, batch, limits).catch((error: unknown) => ({ error }))
  if ('error' in answers) {
    // Lost with its connection, it may have been stored: not for us to do again. Any other error has undone all of it.
    if (isUndone(answers.error)) void storeAlone(batch)
    else for (const each of batch) each.reject(answers.error)
    return
  }
  const again = batch.filter((each, index) => {
    const answer = answers[index] as { outcome: string }
    if (answer.outcome === 'again') return true
    each.resolve([{ answer }])
    return false
  })
  void storeAlone(again)
}

async function storeAlone(batch: Waiting[]): Promise<void> {
  await Promise.all(batch.map(({ alone, resolve, reject }) => alone().then(resolve, reject)))
}

/** The answer of a database that has rolled back and goes on. */
function isUndone(error: unknown): boolean {
  return error instanceof Error && 'severity' in error && error.severity === 'ERROR'
}

/** A deadlock undoes all of a batch and is past by then: once more. */
async function callBatch(sql: Sql, batch: Waiting[], limits: string): Promise<unknown[]> {
  const rows = JSON.stringify(batch.map(({ row }) => row))
  const call = async () => {
    const [row] = await sql`select patchcord.send_batch(${rows}::text::jsonb, ${limits}::text::jsonb) as answers`
    return row?.answers as unknown[]
  }
  try {
    return await call()
  } catch (error) {
    if ((error as { code?: unknown }).code !== '40P01') throw error
    return await call()
  }
}
