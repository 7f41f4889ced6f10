import { mkdir, open, readFile, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { forgetOrigin, readOrigins, recordOrigin } from '../../scripts/lib/origins.mjs'
import { isRecord } from '../../scripts/lib/text.mjs'
import { type Edit, type Planned, undoEdit } from './edits.ts'
import { CommandError } from './errors.ts'
import {
  hasCode,
  hashOf,
  makePrivateFolder,
  PRIVATE_FILE,
  readBytes,
  removeEmptyFolder,
  writeFileSafely,
} from './files.ts'

const PUBLIC_FILE = 0o644
const LOCK_TRY_MS = 50
/** Whoever held a lock for longer has been killed: the slowest step under it is one call of the server. */
const LOCK_MS_MAX = 60_000

/** What connect did in one folder. */
export interface Connection {
  folder: string
  origin: string
  url: string
  agent: string
  namespace: string
  edits: Edit[]
}

interface State {
  version: 1
  /** Origins that are trusted because of a connection, and of nothing else. */
  origins: string[]
  connections: Connection[]
}

/** Where the user's own files are. */
export interface Places {
  configFolder: string
  originsFile: string
}

/** The record of every connection, in the user's own folder: what disconnect undoes, with the bytes of before. */
export class Connections {
  readonly #places: Places
  readonly #state: State

  private constructor(places: Places, state: State) {
    this.#places = places
    this.#state = state
  }

  /** Works on the record while nobody else does: two connects at once must not overwrite what the other has noted. */
  static async use<T>(places: Places, work: (connections: Connections) => Promise<T>): Promise<T> {
    await makePrivateFolder(places.configFolder)
    const lock = join(places.configFolder, 'connections.lock')
    await takeLock(lock)
    try {
      return await work(await Connections.#open(places))
    } finally {
      await rm(lock, { force: true })
      await removeEmptyFolder(places.configFolder)
    }
  }

  static async #open(places: Places): Promise<Connections> {
    const file = join(places.configFolder, 'connections.json')
    const text = await readFile(file, 'utf8').catch((error) => {
      if (hasCode(error, 'ENOENT')) return null
      throw error
    })
    return new Connections(
      places,
      text === null ? { version: 1, origins: [], connections: [] } : parseState(file, text),
    )
  }

  find(folder: string): Connection | null {
    return this.#state.connections.find((connection) => connection.folder === folder) ?? null
  }

  /** The bytes of a file as they would be without the connection of a folder. */
  async readWithout(folder: string, file: string): Promise<Buffer | null> {
    const current = await readBytes(file)
    const edit = this.find(folder)?.edits.find((each) => each.file === file)
    return edit === undefined ? current : undoEdit(edit, current, await this.#readBackup(edit))
  }

  /**
   * Carries out what was planned upon `readWithout`. The record and the bytes of before are written first: whatever breaks
   * off later, disconnect knows what to look for.
   */
  async connect(facts: Omit<Connection, 'edits'>, plans: readonly Planned[]): Promise<void> {
    const old = this.find(facts.folder)
    const leftOut = (old?.edits ?? []).filter((edit) => !plans.some((plan) => plan.edit.file === edit.file))
    const undone = await Promise.all(
      leftOut.map(async (edit) => ({ edit, bytes: await this.readWithout(facts.folder, edit.file) })),
    )
    const isTrusted = (await readOrigins(this.#places.originsFile)).has(facts.origin)
    await makePrivateFolder(this.#backupFolder)
    for (const { edit, before } of plans) if (before !== null) await this.#writeBackup(edit, before)
    const others = this.#state.connections.filter(({ folder }) => folder !== facts.folder)
    this.#state.connections = [...others, { ...facts, edits: plans.map(({ edit }) => edit) }]
    if (!isTrusted && !this.#state.origins.includes(facts.origin)) this.#state.origins.push(facts.origin)
    await this.#save()
    for (const { edit, bytes } of undone) await this.#restore(edit, bytes)
    for (const { edit, next } of plans) {
      if (edit.isNew && edit.kind === 'rules') await mkdir(dirname(edit.file), { recursive: true })
      await writeFileSafely(edit.file, next, edit.kind === 'ignore' ? PUBLIC_FILE : PRIVATE_FILE)
    }
    await recordOrigin(this.#places.originsFile, facts.origin)
    await this.#releaseOrigins()
  }

  /** Undoes a connection; its files, and whether each is gone now. Throws, with nothing changed, where one cannot be read. */
  async disconnect(connection: Connection): Promise<{ file: string; isGone: boolean }[]> {
    const undone = await Promise.all(
      connection.edits.map(async (edit) => ({ edit, bytes: await this.readWithout(connection.folder, edit.file) })),
    )
    for (const { edit, bytes } of undone) await this.#restore(edit, bytes)
    this.#state.connections = this.#state.connections.filter((each) => each !== connection)
    await this.#releaseOrigins()
    return undone.map(({ edit, bytes }) => ({ file: edit.file, isGone: bytes === null }))
  }

  async #restore(edit: Edit, bytes: Buffer | null): Promise<void> {
    if (bytes !== null) {
      const current = await readBytes(edit.file)
      if (current === null || !current.equals(bytes)) await writeFileSafely(edit.file, bytes, PRIVATE_FILE)
    } else {
      await rm(edit.file, { force: true })
      if (edit.kind === 'rules') await removeEmptyFolder(dirname(edit.file))
    }
    await rm(this.#backupFile(edit), { force: true })
  }

  /** Trust that came with a connection goes with the last one. */
  async #releaseOrigins(): Promise<void> {
    const used = new Set(this.#state.connections.map(({ origin }) => origin))
    const unused = this.#state.origins.filter((origin) => !used.has(origin))
    for (const origin of unused) await forgetOrigin(this.#places.originsFile, origin)
    this.#state.origins = this.#state.origins.filter((origin) => used.has(origin))
    await this.#save()
  }

  /** With nothing left to say, nothing is left behind. */
  async #save(): Promise<void> {
    const { configFolder } = this.#places
    const file = join(configFolder, 'connections.json')
    if (this.#state.connections.length > 0) {
      await writeFileSafely(file, Buffer.from(`${JSON.stringify(this.#state, null, 2)}\n`), PRIVATE_FILE)
      return
    }
    await rm(file, { force: true })
    await removeEmptyFolder(this.#backupFolder)
  }

  get #backupFolder(): string {
    return join(this.#places.configFolder, 'backups')
  }

  #backupFile({ file }: Edit): string {
    return join(this.#backupFolder, `${hashOf(Buffer.from(file)).slice(0, 16)}-${basename(file).replace(/^\.+/, '')}`)
  }

  async #writeBackup(edit: Edit, before: Buffer): Promise<void> {
    await writeFileSafely(this.#backupFile(edit), before, PRIVATE_FILE)
  }

  async #readBackup(edit: Edit): Promise<Buffer | null> {
    return edit.isNew ? null : await readBytes(this.#backupFile(edit))
  }
}

async function takeLock(file: string): Promise<void> {
  for (;;) {
    try {
      const handle = await open(file, 'wx', PRIVATE_FILE)
      return await handle.close()
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw error
    }
    const heldAt = await stat(file).then(
      ({ mtimeMs }) => mtimeMs,
      () => Date.now(),
    )
    if (Date.now() - heldAt > LOCK_MS_MAX) await rm(file, { force: true })
    else await sleep(LOCK_TRY_MS)
  }
}

function parseState(file: string, text: string): State {
  try {
    const json: unknown = JSON.parse(text)
    if (isRecord(json) && json.version === 1 && Array.isArray(json.connections) && Array.isArray(json.origins)) {
      return json as unknown as State
    }
  } catch {
    // Told below, as any other text that is not ours.
  }
  throw new CommandError('unreadable', `${file} is damaged. Nothing was changed.`, {
    hint: 'Move it away; then connect writes anew, and what was connected before is removed by hand.',
  })
}
