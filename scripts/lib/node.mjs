/** What programs of some milliseconds take from Node, in its cheapest form. Loaded first, so it needs nothing. */

/**
 * @typedef {object} Lean
 * @property {typeof import('node:fs')} fs
 * @property {typeof import('node:net')} net
 * @property {typeof import('node:os')} os
 * @property {typeof import('node:path')} path
 */

/** Node before 20.16 gives them by import alone. @type {Lean | null} */
const imported = 'getBuiltinModule' in process ? null : await importAll()

async function importAll() {
  const [fs, net, os, path] = await Promise.all([
    import('node:fs'),
    import('node:net'),
    import('node:os'),
    import('node:path'),
  ])
  return { fs: fs.default, net: net.default, os: os.default, path: path.default }
}

/**
 * One of Node's own modules as `require` gives it. `import` makes a wrapper that evaluates all that a module exports, which for
 * node:fs and node:net loads much that a hook never uses.
 * @template {keyof Lean} Name
 * @param {Name} name
 * @returns {Lean[Name]}
 */
export function getBuiltin(name) {
  if (imported !== null) return imported[name]
  return /** @type {Lean[Name]} */ (/** @type {unknown} */ (process.getBuiltinModule(name)))
}

/** Milliseconds of a clock that nobody sets. `performance` is the same, and ten more modules of Node. */
export function monotonicMs() {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}
