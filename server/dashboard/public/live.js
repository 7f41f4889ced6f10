// Keeps the parts of a page fresh that are marked `data-live`: fetched again when the server tells of something and now and then.
const RETRY_MS = 5_000
/** Many events in a moment are one fetch. */
const GATHER_MS = 150

/** @param {HTMLElement} part */
function keep(part) {
  const { live: url = '', events, every = '20' } = part.dataset
  const state = document.querySelector(`[data-live-state="${part.id}"]`)
  let etag = ''
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer

  /** @param {string} text */
  function say(text) {
    if (!(state instanceof HTMLElement) || state.textContent === text) return
    state.textContent = text
    state.hidden = text === ''
  }

  /** @param {number} ms */
  function schedule(ms) {
    clearTimeout(timer)
    timer = setTimeout(refresh, ms)
  }

  /** Nothing moves under somebody who writes, marks or decides there. */
  function isInUse() {
    const selection = getSelection()
    const isMarked = selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode)
    return isMarked || part.contains(document.activeElement) || part.querySelector('details[open]') !== null
  }

  async function refresh() {
    if (document.hidden) return
    if (isInUse()) {
      say('Paused while you read or write here.')
      schedule(RETRY_MS)
      return
    }
    const answer = await fetch(url, { headers: etag ? { 'if-none-match': etag } : {}, cache: 'no-store' }).catch(
      () => null,
    )
    if (answer?.status === 401) {
      say('Paused: you are signed out. Reload the page to sign in.')
      return
    }
    schedule(Number(every) * 1000)
    if (!answer || (!answer.ok && answer.status !== 304))
      say('Paused: the server cannot be reached. It is tried again.')
    else if (answer.status === 304) say('')
    else await swap(answer)
  }

  /** @param {Response} answer */
  async function swap(answer) {
    const html = await answer.text()
    if (isInUse()) return
    etag = answer.headers.get('etag') ?? ''
    part.innerHTML = html
    say('')
    document.dispatchEvent(new CustomEvent('patchcord:updated'))
  }

  if (events) listen(events, () => schedule(GATHER_MS))
  document.addEventListener('visibilitychange', () => !document.hidden && schedule(0))
  addEventListener('online', () => schedule(0))
  schedule(Number(every) * 1000)
}

/** @type {Map<string, EventSource>} One connection for all parts of a page. */
const sources = new Map()

/** @param {string} url @param {() => void} tell */
function listen(url, tell) {
  const source = sources.get(url) ?? new EventSource(url)
  sources.set(url, source)
  source.addEventListener('message', tell)
  source.addEventListener('open', tell)
}

addEventListener('pagehide', () => {
  for (const source of sources.values()) source.close()
})
for (const part of document.querySelectorAll('[data-live]')) if (part instanceof HTMLElement) keep(part)
