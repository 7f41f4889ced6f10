import { execFile } from 'node:child_process'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { installPlugin, removePlugin, runClaudeCommand } from './claude.ts'
import type { PluginCopy } from './plugin-copy.ts'
import type { Scene } from './scene.ts'

/** The plugin in one version after the other, as its users come by them: from a folder, and from a host of git repositories. */

const MANIFESTS = ['.claude-plugin/plugin.json', '.claude-plugin/marketplace.json', 'package.json']
const VERSION = /("version": ")[^"]+/g
/** Where no host is: git takes the folder of the world instead, as the user's own configuration says. */
const HOST = 'https://plugins.invalid/'

export interface Source {
  /** What the client was told to install from. */
  copy: PluginCopy
  /** The folder that the client runs a version from. */
  findRoot(version: string): string
  /** Puts a version there, and has the client fetch it. */
  update(version: string): Promise<void>
}

/** A folder that is its own marketplace is read in place. */
export async function installFromFolder({ home, copy }: Scene): Promise<Source> {
  const findRoot = () => copy.folder
  return { copy, findRoot, update: (version) => release(home, copy, version) }
}

/** What a host of git repositories has is cloned, and every version is copied into the client's cache. */
export async function installFromHost({ home, copy, world }: Scene): Promise<Source> {
  const repository = join(world.folder, 'host/patchcord.git')
  const identity = '[user]\nname = somebody\nemail = somebody@plugins.invalid\n'
  const host = `[url ${JSON.stringify(`file://${join(world.folder, 'host')}/`)}]\ninsteadOf = ${HOST}\n`
  await writeFile(join(home, '.gitconfig'), `${identity}${host}`)
  const git = (...args: string[]) =>
    promisify(execFile)('git', args, { cwd: copy.folder, env: { HOME: home, PATH: process.env.PATH } })
  const publish = async (message: string) => {
    await git('add', '--all')
    await git('commit', '--quiet', '--allow-empty', '--message', message)
    await git('push', '--quiet', repository, 'HEAD:main')
  }
  await git('init', '--quiet', '--initial-branch', 'main')
  await git('init', '--quiet', '--bare', '--initial-branch', 'main', repository)
  await publish('the first version')
  await removePlugin(home, copy)
  const hosted = { ...copy, folder: `${HOST}${basename(repository)}` }
  await installPlugin(home, hosted)
  return {
    copy: hosted,
    findRoot: (version) => join(home, '.claude/plugins/cache', copy.marketplace, copy.plugin, version),
    update: (version) => release(home, copy, version, publish),
  }
}

async function release(
  home: string,
  copy: PluginCopy,
  version: string,
  publish: (message: string) => Promise<void> = async () => {},
): Promise<void> {
  await rewrite(copy.folder, version)
  await publish(version)
  await runClaudeCommand(home, ['plugin', 'marketplace', 'update', copy.marketplace])
  const said = await runClaudeCommand(home, ['plugin', 'update', `${copy.plugin}@${copy.marketplace}`])
  if (!said.includes(version)) throw new Error(`not updated to ${version}: ${said}`)
}

/** A version whose hooks and skills can be told from those of another. */
async function rewrite(folder: string, version: string): Promise<void> {
  for (const name of MANIFESTS) {
    const text = await readFile(join(folder, name), 'utf8')
    await writeFile(join(folder, name), text.replaceAll(VERSION, `$1${version}`))
  }
  const hooksFile = join(folder, 'plugin/hooks.json')
  const { hooks, ...rest } = JSON.parse(await readFile(hooksFile, 'utf8'))
  const [{ hooks: ours }] = hooks.SessionStart
  hooks.SessionStart = [{ hooks: [ours[0], { type: 'command', command: `echo ${mark('hooks', version)}` }] }]
  await writeFile(hooksFile, JSON.stringify({ hooks, ...rest }, null, 2))
  const skillFile = join(folder, 'skills/messaging/SKILL.md')
  const skill = await readFile(skillFile, 'utf8')
  await writeFile(
    skillFile,
    skill.replace(/^description: (?:skill-of-\S+ )?/m, `description: ${mark('skill', version)} `),
  )
}

function mark(part: 'hooks' | 'skill', version: string): string {
  return `${part}-of-${version}`
}

/** The versions that something in this text is of, each as often as it is there: `hooks-of-0.2.0`. */
export function listMarks(text: string): string[] {
  return text.match(/\b(?:hooks|skill)-of-[\d.]+\d/g)?.sort() ?? []
}

/** The files that listeners of this machine run from. */
export async function listListeners(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  // One that ends in this moment has no command line any more.
  const commands = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
  const listeners = commands
    .map((command) => command.split('\0'))
    .filter(([program = '']) => basename(program) === 'node')
  return listeners.flatMap((args) => args.filter((arg) => arg.endsWith('/scripts/subscribe.mjs'))).sort()
}
