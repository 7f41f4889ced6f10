// Copies the text of the element that a button names, and says so. Without scripts the buttons stay hidden.
const SAID_MS = 2_000

/** @param {ParentNode} root */
function show(root) {
  for (const button of root.querySelectorAll('button[data-copy]')) button.removeAttribute('hidden')
}

/** @param {HTMLButtonElement} button */
async function copy(button) {
  const source = document.getElementById(button.dataset.copy ?? '')
  if (!source) return
  const text = source.textContent?.trim() ?? ''
  const label = button.textContent
  try {
    await navigator.clipboard.writeText(text)
    button.textContent = 'Copied'
    document.dispatchEvent(new CustomEvent('patchcord:copied', { detail: source.id }))
  } catch {
    // Plain http has no clipboard: what is selected is one key press away.
    getSelection()?.selectAllChildren(source)
    button.textContent = 'Press Ctrl+C'
  }
  setTimeout(() => {
    button.textContent = label
  }, SAID_MS)
}

document.addEventListener('click', (event) => {
  const button = event.target instanceof Element ? event.target.closest('button[data-copy]') : null
  if (button instanceof HTMLButtonElement) void copy(button)
})
document.addEventListener('patchcord:updated', () => show(document))
show(document)
