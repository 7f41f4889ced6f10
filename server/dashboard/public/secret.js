// Asks once when a page with a secret that nobody copied is left: it is shown only there.
{
  const secret = document.querySelector('[data-secret]')
  if (secret) {
    let isTaken = false
    const take = () => {
      isTaken = true
    }
    secret.addEventListener('copy', take)
    document.addEventListener('patchcord:copied', take)
    addEventListener('beforeunload', (event) => {
      if (isTaken) return
      isTaken = true
      event.preventDefault()
    })
  }
}
