import { basename, dirname, join } from 'node:path'
import { isRecord } from '../../scripts/lib/basics.cjs'
import { forgetTrust, readTrusted, recordTrust } from '../../scripts/lib/identity.cjs'
import { describeUndo, type Edit, type Planned, undoEdit } from './edits.ts'
import { CommandError } from './errors.ts'
import {
  checkInPlace,
  hashOf,
  isSame,
  isThere,
  makePrivateFolder,
  PRIVATE_FILE,
  readBytes,
  readPrivateFile,
  removeEmptyFolder,
  sweepTemporary,
} from './files.ts'
import { Journal } from './journal.ts'
import { takeLock } from './lock.ts'

const PUBLIC_FILE = 0o644

/** What connect did in one folder. */
export interface Connection {
  folder: string
  origin: string
  url: string
  agent: string
  namespace: string
  /** Under which it is trusted. */
  trustId: string
  edits: Edit[]
}

interface State {
  version: 1
  /** What is trusted because of a connection, and of nothing else. */
  trusted: string[]
  connections: Connection[]
}

/** Where the user's own files are. */
export interface Places {
  configFolder: string
  trustFile: string
  /** For people, while it takes its time. */
  note(line: string): void
}

/** The record of every connection, in the user's own folder: what disconnect undoes, with the bytes of before. */
export class Connections {
  readonly #places: Places
  #state: State
  /** What each file held when it was read: whatever is written is written upon that. */
  readonly #seen = new Map<string, Buffer | null>()

  private constructor(places: Places, state: State) {
    this.#places = places
    this.#state = state
  }

  /** Works on the record while nobody else does: two connects at once must not overwrite what the other has noted. */
  static async use<T>(places: Places, work: (connections: Connections) => Promise<T>): Promise<T> {
    const { configFolder, note } = places
    const release = await takeLock(join(configFolder, 'connections.lock'), note, () => makePrivateFolder(configFolder))
    try {
      await sweepTemporary(configFolder)
      await sweepTemporary(join(configFolder, 'backups'))
      return await work(await Connections.#open(places))
    } finally {
      await release()
      await removeEmptyFolder(configFolder)
    }
  }

  static async #open(places: Places): Promise<Connections> {
    const file = join(places.configFolder, 'connections.json')
    const text = await readPrivateFile(file)
    return new Connections(
      places,
      text === null ? { version: 1, trusted: [], connections: [] } : parseState(file, text),
    )
  }

  find(folder: string): Connection | null {
    return this.#state.connections.find((connection) => connection.folder === folder) ?? null
  }

  /** The rules for the client that were written when a folder was connected as the same agent of the same server. */
  listRules({ folder, url, agent, namespace }: Omit<Connection, 'edits'>): Edit[] {
    const old = this.find(folder)
    const isSameAgent = old?.url === url && old.agent === agent && old.namespace === namespace
    return isSameAgent ? old.edits.filter(({ kind }) => kind === 'rules') : []
  }

  /** Folders that are gone, and were connected to an address. */
  async listGone(url: string): Promise<string[]> {
    const folders = this.#state.connections.filter((connection) => connection.url === url).map(({ folder }) => folder)
    const isGone = await Promise.all(folders.map(async (folder) => !(await isThere(folder))))
    return folders.filter((_, index) => isGone[index])
  }

  /** The bytes of a file as they would be without the connection of a folder. Throws where what was written leads elsewhere now. */
  async readWithout(folder: string, file: string): Promise<Buffer | null> {
    const edit = this.find(folder)?.edits.find((each) => each.file === file)
    if (edit !== undefined) await checkInPlace(file)
    const current = await readBytes(file)
    this.#seen.set(file, current)
    return edit === undefined ? current : undoEdit(edit, current, await this.#readBackup(edit))
  }

  /**
   * Carries out what was planned upon `readWithout`: all of it, or nothing. The record and the bytes of before are written
   * first: wherever it is killed, disconnect knows what to look for. Throws FileChanged where a file is not as it was read.
   * @param kept edits of before that stay in the record, and their files as they are
   */
  async connect(
    facts: Omit<Connection, 'edits'>,
    plans: readonly Planned[],
    kept: readonly Edit[] = [],
  ): Promise<void> {
    const old = this.find(facts.folder)
    const edits = [...kept, ...plans.map(({ edit }) => edit)]
    const leftOut = (old?.edits ?? []).filter(({ file }) => !edits.some((edit) => edit.file === file))
    const undone = await this.#undo(facts.folder, leftOut)
    await sweepFolders([...plans.map(({ edit }) => edit), ...leftOut])
    const isTrusted = readTrusted(this.#places.trustFile).has(facts.trustId)
    await makePrivateFolder(this.#backupFolder)
    await this.#change(async (journal) => {
      for (const { edit, before } of plans) {
        if (before !== null) await journal.write(this.#backupFile(edit), before, { mode: PRIVATE_FILE })
      }
      const others = this.#state.connections.filter(({ folder }) => folder !== facts.folder)
      this.#state.connections = [...others, { ...facts, edits }]
      if (!isTrusted && !this.#state.trusted.includes(facts.trustId)) this.#state.trusted.push(facts.trustId)
      await this.#save(journal)
      for (const { edit, bytes } of undone) await this.#restore(journal, edit, bytes)
      for (const { edit, next } of plans) {
        if (edit.isNew && edit.kind === 'rules') await journal.makeFolder(dirname(edit.file))
        const isPublic = edit.kind === 'ignore'
        const mode = isPublic ? PUBLIC_FILE : PRIVATE_FILE
        await journal.write(edit.file, next, { mode, expected: this.#seen.get(edit.file), isOwnOnly: !isPublic })
      }
      const { trustFile } = this.#places
      await journal.watch(trustFile, () => recordTrust(trustFile, facts.trustId))
      await this.#releaseTrust(journal)
    })
  }

  /** Undoes a connection; a line of each file for people. Where one cannot be read or written, nothing is changed. */
  async disconnect(connection: Connection): Promise<string[]> {
    const undone = await this.#undo(connection.folder, connection.edits)
    await sweepFolders(connection.edits)
    await this.#change(async (journal) => {
      for (const { edit, bytes } of undone) await this.#restore(journal, edit, bytes)
      this.#state.connections = this.#state.connections.filter((each) => each !== connection)
      await this.#releaseTrust(journal)
    })
    return undone.map(({ line }) => line)
  }

  async #change(work: (journal: Journal) => Promise<void>): Promise<void> {
    const { connections, trusted } = this.#state
    try {
      this.#state = { version: 1, connections, trusted: [...trusted] }
      await Journal.run(work)
    } catch (error) {
      this.#state = { version: 1, connections, trusted }
      await removeEmptyFolder(this.#backupFolder)
      throw error
    }
  }

  async #undo(folder: string, edits: readonly Edit[]): Promise<{ edit: Edit; bytes: Buffer | null; line: string }[]> {
    return await Promise.all(
      edits.map(async (edit) => {
        const bytes = await this.readWithout(folder, edit.file)
        const current = this.#seen.get(edit.file) ?? null
        return { edit, bytes, line: describeUndo(edit, current, await this.#readBackup(edit)) }
      }),
    )
  }

  async #restore(journal: Journal, edit: Edit, bytes: Buffer | null): Promise<void> {
    const seen = this.#seen.get(edit.file) ?? null
    if (bytes === null) {
      await journal.remove(edit.file, seen)
      if (edit.kind === 'rules') await removeEmptyFolder(dirname(edit.file))
    } else if (!isSame(seen, bytes)) {
      // What comes back in the place of our entry may hold a token, too.
      await journal.write(edit.file, bytes, { mode: PRIVATE_FILE, expected: seen, isOwnOnly: edit.isReplacing })
    }
    await journal.remove(this.#backupFile(edit))
  }

  /** Trust that came with a connection goes with the last one. */
  async #releaseTrust(journal: Journal): Promise<void> {
    const { trustFile } = this.#places
    const used = new Set(this.#state.connections.map(({ trustId }) => trustId))
    const unused = this.#state.trusted.filter((id) => !used.has(id))
    for (const id of unused) await journal.watch(trustFile, () => forgetTrust(trustFile, id))
    this.#state.trusted = this.#state.trusted.filter((id) => used.has(id))
    await this.#save(journal)
  }

  /** With nothing left to say, nothing is left behind. */
  async #save(journal: Journal): Promise<void> {
    const file = join(this.#places.configFolder, 'connections.json')
    if (this.#state.connections.length > 0) {
      const text = `${JSON.stringify(this.#state, null, 2)}\n`
      await journal.write(file, Buffer.from(text), { mode: PRIVATE_FILE })
      return
    }
    await journal.remove(file)
    await removeEmptyFolder(this.#backupFolder)
  }

  get #backupFolder(): string {
    return join(this.#places.configFolder, 'backups')
  }

  #backupFile({ file }: Edit): string {
    return join(this.#backupFolder, `${hashOf(Buffer.from(file)).slice(0, 16)}-${basename(file).replace(/^\.+/, '')}`)
  }

  async #readBackup(edit: Edit): Promise<Buffer | null> {
    return edit.isNew ? null : await readBytes(this.#backupFile(edit))
  }
}

async function sweepFolders(edits: readonly Edit[]): Promise<void> {
  for (const folder of new Set(edits.map(({ file }) => dirname(file)))) await sweepTemporary(folder)
}

function parseState(file: string, text: string): State {
  try {
    const json: unknown = JSON.parse(text)
    if (isRecord(json) && json.version === 1 && Array.isArray(json.connections) && Array.isArray(json.trusted)) {
      return json as unknown as State
    }
  } catch {
    // Told below, as any other text that is not ours.
  }
  throw new CommandError('unreadable', `${file} is damaged. Nothing was changed.`, {
    hint: 'Move it away; then connect writes anew, and what was connected before is removed by hand.',
  })
}
