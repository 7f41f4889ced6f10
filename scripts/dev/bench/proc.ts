import { readdir, readFile } from 'node:fs/promises'

/** What Linux knows of a process. */

export function requireLinux(): void {
  if (process.platform !== 'linux')
    throw new Error('this part reads /proc, which only Linux has: leave it out with --only')
}

/** RSS, and of it what is not a file's, that is, not shared with other processes of Node. */
export async function readMemory(pid: number): Promise<{ rssKb: number; anonymousKb: number }> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  const read = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1])
  return { rssKb: read('VmRSS'), anonymousKb: read('RssAnon') }
}

/** Time on a CPU of every thread, in ms: proc(5), schedstat. */
export async function readCpuMs(pid: number): Promise<number> {
  const threads = await readdir(`/proc/${pid}/task`)
  const times = await Promise.all(
    threads.map(async (thread) =>
      Number((await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8')).split(' ')[0]),
    ),
  )
  return times.reduce((sum, ns) => sum + ns, 0) / 1e6
}
