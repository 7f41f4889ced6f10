/** What a person is told who starts a listener by hand where its runtime folder is of no use. */
import { describeError, toOneLine } from './text.mjs'

const AGAIN = 'then start the listener again'
const ADVICE = 'mend that or set XDG_RUNTIME_DIR to another folder'
/** What is wrong, by the system's code. */
const FAULTS = /** @type {const} */ ({
  ENOSPC: `no space left for the listener's files: free some, ${AGAIN}`,
  EDQUOT: `your disk quota leaves no space for the listener's files: free some, ${AGAIN}`,
  EROFS: `the listener's files cannot be written on a read-only disk: ${ADVICE}`,
  EACCES: `the listener's files cannot be written: ${ADVICE}`,
})

/**
 * One sentence of our own, with what to do, and where; the place comes last, as it may be long.
 * @param {unknown} error @param {string} folder
 */
export function describeFolderFault(error, folder) {
  const code = error instanceof Error && 'code' in error ? String(error.code) : null
  // Thrown by ourselves: the rest is said already.
  if (code === null) return `${describeError(error)}: ${ADVICE}`
  const text = Object.hasOwn(FAULTS, code)
    ? FAULTS[/** @type {keyof typeof FAULTS} */ (code)]
    : `the listener's files cannot be written (${toOneLine(code, 20)}): ${ADVICE}`
  return `${text} (${folder})`
}
