import type { ParseArgsConfig } from 'node:util'
import type { Environment } from '../env.ts'
import type { Output } from './output.ts'

export type Options = Record<string, string | boolean | undefined>

export interface Invocation {
  environment: Environment
  /** The working directory: whose project this is. */
  folder: string
  options: Options
  arguments: string[]
  output: Output
}

/** One verb of the command. `run` gives the exit code; what it throws is told by main. */
export interface Verb {
  /** The lines below "Usage: ", and what the verb does. */
  help: string
  options?: NonNullable<ParseArgsConfig['options']>
  /** How many arguments there may be. */
  arity: readonly [min: number, max: number]
  run(invocation: Invocation): Promise<number>
}

export function textOption(options: Options, name: string): string | undefined {
  const value = options[name]
  return typeof value === 'string' ? value : undefined
}
