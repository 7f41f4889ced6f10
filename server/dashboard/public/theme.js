// Switches the theme in place; without scripts the form does it with a reload.
{
  const form = document.querySelector('form[data-themes]')
  form?.addEventListener('submit', (event) => {
    const button = /** @type {SubmitEvent} */ (event).submitter
    if (!(form instanceof HTMLFormElement) || !(button instanceof HTMLButtonElement)) return
    event.preventDefault()
    document.documentElement.dataset.theme = button.value
    for (const other of form.querySelectorAll('button')) other.setAttribute('aria-pressed', String(other === button))
    const body = new URLSearchParams({ csrf: String(new FormData(form).get('csrf')), theme: button.value })
    // Should it fail, the theme is kept until the page is left: nothing to tell anybody.
    fetch(form.action, { method: 'POST', body, redirect: 'manual' }).catch(() => {})
  })
}
