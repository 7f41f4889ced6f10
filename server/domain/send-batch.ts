import type { Limits } from '../config.ts'
import type { Sql } from '../db/connect.ts'
import { connectionLost } from '../db/errors.ts'
import { createLanes } from '../db/lanes.ts'
import type { EntryRows, SendBatch, SendRow } from '../db/scope.ts'
import { createTurns } from '../db/turns.ts'
import { attentionLimits } from './attention.ts'

/** More subtransactions than these in one transaction, with those of `realtime.send`, cost every reader of the database. */
const ROWS_MAX = 32
/** Of text: what comes with a long one must not wait for many of its kind. */
const CHARACTERS_MAX = 200_000
/** One core stores these sooner together than two cores do half of them each. */
const SECOND_LANE_ROWS = 4

/** Statements that go at once for what failed in its batch. */
const ALONE_MAX = 4

type BatchAnswer = { outcome: string }

interface Waiting {
  row: SendRow
  alone: () => Promise<EntryRows>
  resolve(answers: EntryRows): void
  reject(error: unknown): void
}

/** Sends that come at once go together; see `createLanes`. */
export function createSendBatch(sql: Sql, limits: Limits, lanes?: number): SendBatch {
  const waiting: Waiting[] = []
  const store = createStore(sql, JSON.stringify(attentionLimits(limits)))
  const start = createLanes({
    countWaiting: () => waiting.length,
    anotherAt: SECOND_LANE_ROWS,
    run: () => store(takeBatch(waiting)),
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

/** Stores a batch and never rejects: each of it hears what came of it. */
function createStore(sql: Sql, limits: string): (batch: Waiting[]) => Promise<void> {
  /** What has failed in a batch is slow to try, as a rule for a lock of somebody: it must leave connections to others. */
  const slowly = createTurns(ALONE_MAX)

  function storeSlowly({ alone, resolve, reject }: Waiting): void {
    void slowly('', alone).then(resolve, reject)
  }

  /** Who keeps a batch from being stored is not known: halves of it find that one, while the others go through. */
  async function storeHalves(batch: Waiting[]): Promise<void> {
    const middle = Math.ceil(batch.length / 2)
    const halves = [batch.slice(0, middle), batch.slice(middle)]
    await Promise.all(halves.filter(({ length }) => length > 0).map(storeTogether))
  }

  async function storeTogether(batch: Waiting[]): Promise<void> {
    let answers: BatchAnswer[]
    try {
      answers = await callBatch(sql, batch, limits)
    } catch (error) {
      // Lost with its connection, it may have been stored: not for us to do again. Any other error has undone all of it.
      if (!isUndone(error)) for (const each of batch) each.reject(error)
      else if (batch.length === 1) batch.forEach(storeSlowly)
      else await storeHalves(batch)
      return
    }
    const late: Waiting[] = []
    for (const [index, each] of batch.entries()) {
      const answer = answers[index] as BatchAnswer
      if (answer.outcome === 'again') storeSlowly(each)
      else if (answer.outcome === 'late') late.push(each)
      else each.resolve([{ answer }])
    }
    await storeHalves(late)
  }

  return async (batch) => {
    const [first] = batch
    if (first && batch.length === 1) await first.alone().then(first.resolve, first.reject)
    else await storeTogether(batch)
  }
}

/** The answer of a database that has rolled back and goes on. */
function isUndone(error: unknown): boolean {
  return error instanceof Error && 'severity' in error && error.severity === 'ERROR'
}

/** A deadlock undoes all of a batch and is past by then: once more. */
async function callBatch(sql: Sql, batch: Waiting[], limits: string): Promise<BatchAnswer[]> {
  const rows = JSON.stringify(batch.map(({ row }) => row))
  const call = async () => {
    const [row] = await sql`select patchcord.send_batch(${rows}::text::jsonb, ${limits}::text::jsonb) as answers`
    const answers = row?.answers as BatchAnswer[] | undefined
    // A query that is cut off with its connection can end without rows and without an error.
    if (answers?.length !== batch.length) throw connectionLost()
    return answers
  }
  try {
    return await call()
  } catch (error) {
    if ((error as { code?: unknown }).code !== '40P01') throw error
    return await call()
  }
}
