import { mkdir, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { CommandError } from './errors.ts'
import {
  FileChanged,
  isSame,
  PRIVATE_FILE,
  PRIVATE_FOLDER,
  readBytes,
  removeEmptyFolder,
  type WriteOptions,
  writeFileSafely,
} from './files.ts'

const TRIES = 5

interface Step {
  file: string
  before: Buffer | null
  after: Buffer | null
}

/** What was done to files, in order, so that all of it can be taken back when a later step fails. */
export class Journal {
  readonly #steps: Step[] = []
  readonly #folders: string[] = []

  /** Does the work; where it throws, every file is as it was, and the same error is thrown. */
  static async run<T>(work: (journal: Journal) => Promise<T>): Promise<T> {
    const journal = new Journal()
    try {
      return await work(journal)
    } catch (error) {
      await journal.#rollBack(error)
      throw error
    }
  }

  /** Throws as writeFileSafely. */
  async write(file: string, bytes: Buffer, options: WriteOptions): Promise<void> {
    await this.watch(file, () => writeFileSafely(file, bytes, options))
  }

  async remove(file: string, expected?: Buffer | null): Promise<void> {
    await this.watch(file, async () => {
      if (expected !== undefined && !isSame(await readBytes(file), expected)) throw new FileChanged(file)
      await rm(file, { force: true })
    })
  }

  /** Notes what somebody else's function does to a file. */
  async watch(file: string, work: () => Promise<void> | void): Promise<void> {
    const before = await readBytes(file)
    await work()
    this.#steps.push({ file, before, after: await readBytes(file) })
  }

  async makeFolder(folder: string): Promise<void> {
    const first = await mkdir(folder, { recursive: true })
    if (first !== undefined) this.#folders.push(folder)
  }

  async #rollBack(cause: unknown): Promise<void> {
    const failed: string[] = []
    for (const step of this.#steps.toReversed()) {
      await putBack(step).catch(() => failed.push(step.file))
    }
    for (const folder of this.#folders) await removeEmptyFolder(folder).catch(() => failed.push(folder))
    if (failed.length === 0) return
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new CommandError('half_done', `${reason}. These could not be put back either: ${failed.join(', ')}.`, {
      hint: 'Make them writable, then: patchcord disconnect.',
      cause,
    })
  }
}

/** What somebody else has written since is theirs. */
async function putBack({ file, before, after }: Step): Promise<void> {
  if (isSame(before, after) || !isSame(await readBytes(file), after)) return
  if (before === null) return await rm(file, { force: true })
  await mkdir(dirname(file), { recursive: true, mode: PRIVATE_FOLDER })
  await writeFileSafely(file, before, { mode: PRIVATE_FILE })
}

/** Plans and writes; plans anew where somebody else has written to a file in between. */
export async function repeatWhenChanged<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof FileChanged)) throw error
      if (tries < TRIES) continue
      throw new CommandError('conflict', `${error.file} keeps changing. Nothing was changed.`, {
        hint: 'Close what writes to it, then try again.',
        cause: error,
      })
    }
  }
}
