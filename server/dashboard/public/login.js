// Sign-in through Supabase Auth (PKCE): an e-mail link, or a provider that the project has switched on.
/**
 * @typedef {{ access_token: string }} Session
 * @typedef {{ error: { message: string } | null }} Outcome
 * @typedef {{
 *   getSession(): Promise<{ data: { session: Session | null } } & Outcome>
 *   signInWithOtp(input: { email: string, options: object }): Promise<Outcome>
 *   signInWithOAuth(input: { provider: string, options: object }): Promise<Outcome>
 * }} Auth
 */
const STORAGE_KEY = 'patchcord-sign-in'
const NAMES = { github: 'GitHub', gitlab: 'GitLab', linkedin_oidc: 'LinkedIn', azure: 'Microsoft', workos: 'WorkOS' }

/** @param {HTMLElement} root */
function start(root) {
  const { url = '', key = '', back = '' } = root.dataset
  const { supabase } = /** @type {{ supabase?: { createClient(...args: unknown[]): { auth: Auth } } }} */ (
    /** @type {unknown} */ (globalThis)
  )
  const options = {
    flowType: 'pkce',
    detectSessionInUrl: true,
    persistSession: true,
    autoRefreshToken: false,
    storageKey: STORAGE_KEY,
  }
  const find = (/** @type {string} */ name) => /** @type {HTMLElement} */ (root.querySelector(`[data-${name}]`))

  /** @param {string} text */
  function fail(text) {
    find('problem').textContent = text
    find('problem').hidden = false
  }

  if (!supabase) {
    fail('The sign-in could not be loaded. Reload the page.')
    return
  }
  const { auth } = supabase.createClient(url, key, { auth: options })

  /** Our server makes a session of its own of it; Supabase's is forgotten here. */
  function finish(/** @type {Session} */ { access_token: token }) {
    localStorage.removeItem(STORAGE_KEY)
    const form = /** @type {HTMLFormElement} */ (document.getElementById('finish'))
    const field = form.elements.namedItem('access_token')
    if (field instanceof HTMLInputElement) field.value = token
    form.submit()
  }

  async function offer() {
    const answer = await fetch(`${url}/auth/v1/settings`, { headers: { apikey: key } })
    if (!answer.ok) throw new Error(`Supabase answers ${answer.status}.`)
    /** @type {{ external?: Record<string, boolean> }} */
    const { external = {} } = await answer.json()
    const providers = Object.keys(external).filter(
      (name) => external[name] && !/^(?:email|phone|anonymous_users)$/.test(name),
    )
    for (const provider of providers) find('providers').append(toButton(provider))
    find('email').hidden = !external.email
    find('or').hidden = !external.email || providers.length === 0
    find('ways').hidden = false
    if (!external.email && providers.length === 0) fail('No way to sign in is switched on in the Supabase project.')
  }

  /** @param {string} provider */
  function toButton(provider) {
    const button = document.createElement('button')
    button.type = 'button'
    button.className = 'button plain wide'
    const name =
      Object.entries(NAMES).find(([id]) => id === provider)?.[1] ?? provider[0]?.toUpperCase() + provider.slice(1)
    button.textContent = `Continue with ${name}`
    button.addEventListener('click', async () => {
      const { error } = await auth.signInWithOAuth({ provider, options: { redirectTo: back } })
      if (error) fail(error.message)
    })
    return button
  }

  find('email').addEventListener('submit', async (event) => {
    event.preventDefault()
    const email = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get('email'))
    const { error } = await auth.signInWithOtp({ email, options: { emailRedirectTo: back } })
    if (error) return fail(error.message)
    for (const part of ['providers', 'or', 'email']) find(part).hidden = true
    find('sent').textContent = `A link is on its way to ${email}. Open it in this browser.`
    find('sent').hidden = false
  })

  async function run() {
    const problem = new URLSearchParams(location.search).get('error_description')
    const { data, error } = await auth.getSession()
    if (data.session) return finish(data.session)
    if (problem || error) fail(problem ?? error?.message ?? '')
    await offer()
  }
  run().catch((error) => fail(`Supabase cannot be reached: ${error.message} Reload the page to try again.`))
}

const root = document.getElementById('supabase')
if (root) start(root)
