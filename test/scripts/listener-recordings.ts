/** What a real Supabase Realtime did, frame by frame: test/fixtures/listener/recorded.jsonl, one recording a line. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { RecordedFrame } from '../helpers/scripted-server.ts'

const FILE = fileURLToPath(new URL('../fixtures/listener/recorded.jsonl', import.meta.url))

/** What came after a join. `transcript` is the number of the recording it was taken from. */
export interface JoinRecording {
  name: string
  transcript: string
  kind: 'refused join' | 'ok, then an error' | 'topic ends' | 'socket ends' | 'deaf' | 'rows'
  frames: RecordedFrame[]
}

export interface UpgradeRecording {
  name: string
  transcript: string
  kind: 'refused upgrade'
  ms: number
  status: number
  reason: string
  headers: Record<string, string>
  body: string
}

type Recording = JoinRecording | UpgradeRecording

const recordings = readFileSync(FILE, 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as Recording)

export function listRecordings(kind: JoinRecording['kind']): JoinRecording[] {
  return recordings.filter((recording) => recording.kind === kind) as JoinRecording[]
}

export function listRefusedUpgrades(): UpgradeRecording[] {
  return recordings.filter((recording) => recording.kind === 'refused upgrade') as UpgradeRecording[]
}

/** Whether the join that was recorded asked for postgres_changes. */
export function hasChanges(recording: JoinRecording): boolean {
  return recording.frames.some((frame) => 'text' in frame && frame.text.includes('"postgres_changes":[{'))
}

/** What the listener must have written on stderr about it. */
export function readReason({ frames }: JoinRecording): string {
  for (const frame of frames) {
    if ('close' in frame) return `ws closed (code=${frame.close})`
    if ('end' in frame) return 'ws closed (code=1006)'
    const { event, payload } = JSON.parse(frame.text) as { event: string; payload: Record<string, unknown> }
    if (payload.status === 'error' && event === 'system') return `system: ${String(payload.message).slice(0, 150)}`
    if (payload.status === 'error')
      return `join refused: ${(payload.response as { reason: string }).reason}`.slice(0, 150)
    if (event === 'phx_error') return 'topic ended (phx_error)'
  }
  throw new Error('a recording without an end')
}
