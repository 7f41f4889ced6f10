import { writeSync } from 'node:fs'
import { inspect } from 'node:util'
import { maySkip, summarize, type Tally } from './tally.ts'

/** What closes by itself after the last test (keep-alive sockets, children that are told to go) has this long. */
const GRACE_MS = 10_000
/** The longest test there is, the kill run, takes minutes; a run in which nothing ends for longer hangs. */
const SILENCE_MS_MAX = 10 * 60_000
const SILENCE_CHECKS = 20

export interface Patience {
  graceMs: number
  silenceMs: number
}

/** `--grace-ms=N` and `--silence-ms=N` shorten what is right for real tests. */
export function parsePatience(args: string[]): Patience {
  const read = (name: string) => args.find((arg) => arg.startsWith(`${name}=`))?.slice(name.length + 1)
  return {
    graceMs: Number(read('--grace-ms') ?? GRACE_MS),
    silenceMs: Number(read('--silence-ms') ?? SILENCE_MS_MAX),
  }
}

/** Prints the summary whichever way the process ends, and makes its exit code agree with it. */
export function summarizeAtExit(tally: Tally): void {
  process.on('exit', (code) => {
    const { text, isGood } = summarize(tally, maySkip())
    writeSync(process.stdout.fd, text)
    if (!isGood && code === 0) process.exitCode = 1
  })
}

/** Ends a run that hangs in a test, and names the test. */
export function watchSilence(tally: Tally, { silenceMs }: Patience): void {
  const check = () => {
    if (Date.now() - tally.lastEventAt < silenceMs) return
    fail(tally, `nothing ended for ${silenceMs / 1000} s; still running: ${[...tally.running.values()].join(', ')}`)
  }
  setInterval(check, silenceMs / SILENCE_CHECKS).unref()
}

/** Call after the last test: if something keeps the process alive, it is named and the run fails. */
export function watchHandles(tally: Tally, { graceMs }: Patience): void {
  const end = () => fail(tally, `still open ${graceMs / 1000} s after the last test: ${listHandles().join(', ')}`)
  setTimeout(end, graceMs).unref()
}

function fail(tally: Tally, message: string): void {
  tally.failures.push({ file: 'test/run.ts', name: message })
  process.exit(1)
}

/** Kinds of what keeps the event loop alive, with what tells sockets and children apart. */
function listHandles(): string[] {
  const { _getActiveHandles } = process as unknown as { _getActiveHandles?: () => unknown[] }
  const handles = (_getActiveHandles?.call(process) ?? []).filter((handle) => !isStandardStream(handle))
  return [...process.getActiveResourcesInfo(), ...handles.map(describeHandle)]
}

function isStandardStream(handle: unknown): boolean {
  return [process.stdin, process.stdout, process.stderr].some((stream) => stream === handle)
}

function describeHandle(handle: unknown): string {
  const { spawnargs, pid, localPort, remotePort, address } = handle as Record<string, unknown>
  const bound = typeof address === 'function' ? address.call(handle) : undefined
  const facts = Object.entries({ spawnargs, pid, localPort, remotePort, bound }).filter(
    ([, value]) => value !== undefined,
  )
  return `${(handle as object).constructor.name} ${inspect(Object.fromEntries(facts), { breakLength: Number.POSITIVE_INFINITY })}`
}
