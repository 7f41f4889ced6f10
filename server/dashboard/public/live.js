// Keeps the parts of a page fresh that are marked `data-live`: fetched again when the server tells of something, now and then, and
// sooner while something in it is `data-unsettled`.
const RETRY_MS = 5_000
/** Many events in a moment are one fetch. */
const GATHER_MS = 150
/** How soon to look again at what is not settled, the longer nothing happens the later. */
const UNSETTLED_MS = [1_000, 2_000, 4_000, 8_000, 15_000]
/** Who has scrolled down by more than this reads something further below. */
const TOP_PX = 120

/** @type {Record<number, string>} Answers after which trying again helps nobody. */
const IN_VAIN = {
  401: 'Paused: you are signed out. Reload the page to sign in.',
  403: 'Paused: you may not see this any more. Reload the page.',
  404: 'Paused: this is not here any more, or has another name. Reload the page.',
}
const UNREACHABLE = 'Paused: the server cannot be reached. It is tried again.'

/** The banner of a paused namespace, as the newest answer says. @param {string | null} text */
function showPause(text) {
  const banner = document.querySelector('[data-paused]')
  const [title, line] = banner?.children ?? []
  if (!(banner instanceof HTMLElement) || !title || !line || text === null) return
  banner.hidden = text === 'no'
  title.textContent = banner.hidden ? '' : 'This namespace is paused'
  line.textContent = banner.hidden ? '' : text
}

/** Says beside a part why it stands still; nothing while it does not. @param {HTMLElement} part @returns {(text: string) => void} */
function createTeller(part) {
  const state = document.querySelector(`[data-live-state="${part.id}"]`)
  return (text) => {
    if (!(state instanceof HTMLElement) || state.textContent === text) return
    state.textContent = text
    state.hidden = text === ''
  }
}

/** Nothing moves under somebody who writes, marks or decides there. @param {HTMLElement} part */
function isInUse(part) {
  const selection = getSelection()
  const isMarked = selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode)
  return isMarked || part.contains(document.activeElement) || part.querySelector('details[open]') !== null
}

/** @param {HTMLElement} part */
function keep(part) {
  const { live: url = '', events, every = '20', rows } = part.dataset
  const say = createTeller(part)
  let etag = ''
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer
  let mark = markOf(part)
  let looks = 0
  let isOver = false
  const announcer = rows === undefined ? null : createAnnouncer(part, rows)

  /** @param {number} ms */
  function schedule(ms) {
    clearTimeout(timer)
    timer = setTimeout(refresh, ms)
  }

  function scheduleNext() {
    const everyMs = Number(every) * 1000
    const soonMs = UNSETTLED_MS[Math.min(looks++, UNSETTLED_MS.length - 1)] ?? everyMs
    schedule(mark === null ? everyMs : Math.min(everyMs, soonMs))
  }

  async function refresh() {
    if (document.hidden || isOver) return
    if (isInUse(part)) {
      say('Paused while you read or write here.')
      schedule(RETRY_MS)
      return
    }
    const headers = new Headers(etag ? { 'if-none-match': etag } : {})
    const answer = await fetch(url, { headers, cache: 'no-store' }).catch(() => null)
    if (!answer || (!answer.ok && answer.status !== 304)) return wait(answer?.status ?? 0)
    showPause(answer.headers.get('x-patchcord-paused'))
    if (answer.status === 304) say('')
    else await take(answer)
    scheduleNext()
  }

  /** Who signs in again in another tab is seen with the next event; what is over is not asked for again. @param {number} status */
  function wait(status) {
    say(IN_VAIN[status] ?? UNREACHABLE)
    isOver = status === 403 || status === 404
    if (!(status in IN_VAIN)) schedule(RETRY_MS)
  }

  /** @param {Response} answer */
  async function take(answer) {
    const html = await answer.text()
    if (isInUse(part)) return
    etag = answer.headers.get('etag') ?? ''
    if (announcer?.holds(html)) patchRows(part, html)
    else part.innerHTML = html
    const next = markOf(part)
    if (next !== mark) looks = 0
    mark = next
    say('')
    document.dispatchEvent(new CustomEvent('patchcord:updated'))
  }

  function hear() {
    looks = 0
    schedule(GATHER_MS)
  }

  if (events) listen(events, hear)
  document.addEventListener('visibilitychange', () => !document.hidden && schedule(0))
  addEventListener('online', () => schedule(0))
  scheduleNext()
}

/** What in a part is not settled, or null. @param {Element} part */
function markOf(part) {
  return part.querySelector('[data-unsettled]')?.getAttribute('data-unsettled') ?? null
}

/** The rows of a fragment by their ids. @param {string} html */
function readRows(html) {
  const template = document.createElement('template')
  template.innerHTML = html
  return new Map([...template.content.querySelectorAll('[data-row]')].map((row) => [row.id, row]))
}

/** Rows that are shown already take their new state where they stand. @param {HTMLElement} part @param {string} html */
function patchRows(part, html) {
  const rows = readRows(html)
  for (const row of part.querySelectorAll('[data-row]')) {
    const fresh = rows.get(row.id)
    if (fresh && fresh.innerHTML !== row.innerHTML) row.replaceWith(fresh)
  }
}

/**
 * Says how many new rows there are instead of showing them, while somebody reads further below; a click shows them.
 * @param {HTMLElement} part @param {string} noun
 */
function createAnnouncer(part, noun) {
  let held = ''
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'button primary small announce'
  button.hidden = true
  part.before(button)
  const live = document.createElement('p')
  live.className = 'sr'
  live.setAttribute('role', 'status')
  part.before(live)

  function show() {
    if (button.hidden) return
    part.innerHTML = held
    hide()
    part.scrollIntoView({ block: 'start' })
    document.dispatchEvent(new CustomEvent('patchcord:updated'))
  }

  function hide() {
    button.hidden = true
    live.textContent = ''
  }

  button.addEventListener('click', show)
  addEventListener('scroll', () => !button.hidden && scrollY <= TOP_PX && show(), { passive: true })
  return {
    /** Whether the new rows of this are held back. @param {string} html */
    holds(html) {
      const count = [...readRows(html).keys()].filter((id) => part.querySelector(`#${CSS.escape(id)}`) === null).length
      if (count === 0 || scrollY <= TOP_PX) {
        hide()
        return count === 0 && scrollY > TOP_PX
      }
      held = html
      const text = `${count} new ${noun}${count === 1 ? '' : 's'}: show`
      button.textContent = text
      if (button.hidden) live.textContent = text
      button.hidden = false
      return true
    },
  }
}

/** @type {Map<string, EventSource>} One connection for all parts of a page. */
const sources = new Map()

/** @param {string} url @param {() => void} tell */
function listen(url, tell) {
  const source = sources.get(url) ?? new EventSource(url)
  sources.set(url, source)
  source.addEventListener('message', tell)
  source.addEventListener('open', tell)
  // Of a server that is gone: the next fetch says so at once.
  source.addEventListener('error', tell)
}

addEventListener('pagehide', () => {
  for (const source of sources.values()) source.close()
})
for (const part of document.querySelectorAll('[data-live]')) if (part instanceof HTMLElement) keep(part)
