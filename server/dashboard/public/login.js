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
/** Settings that are no providers. */
const OTHERS = /^(?:email|phone|anonymous_users)$/
/** @type {Record<string, string>} */
const NAMES = { github: 'GitHub', gitlab: 'GitLab', linkedin_oidc: 'LinkedIn', azure: 'Microsoft', workos: 'WorkOS' }

const root = document.getElementById('supabase')
const { url = '', key = '', back = '' } = root?.dataset ?? {}

/** @param {string} name */
function find(name) {
  return /** @type {HTMLElement} */ (root?.querySelector(`[data-${name}]`))
}

/** @param {string} text */
function fail(text) {
  find('problem').textContent = text
  find('problem').hidden = false
}

/** @returns {Auth | null} */
function createAuth() {
  const { supabase } = /** @type {{ supabase?: { createClient(...args: unknown[]): { auth: Auth } } }} */ (
    /** @type {unknown} */ (globalThis)
  )
  const options = { flowType: 'pkce', detectSessionInUrl: true, autoRefreshToken: false, storageKey: STORAGE_KEY }
  return supabase?.createClient(url, key, { auth: options }).auth ?? null
}

/**
 * Our server makes a session of its own of it; Supabase's is forgotten here.
 * @param {Session} session
 */
function finish({ access_token: token }) {
  localStorage.removeItem(STORAGE_KEY)
  const form = /** @type {HTMLFormElement} */ (document.getElementById('finish'))
  const field = form.elements.namedItem('access_token')
  if (field instanceof HTMLInputElement) field.value = token
  form.submit()
}

/** @param {Auth} auth */
async function offer(auth) {
  const answer = await fetch(`${url}/auth/v1/settings`, { headers: { apikey: key } })
  if (!answer.ok) throw new Error(`Supabase answers ${answer.status}.`)
  /** @type {{ external?: Record<string, boolean> }} */
  const { external = {} } = await answer.json()
  const providers = Object.keys(external).filter((name) => external[name] && !OTHERS.test(name))
  for (const provider of providers) find('providers').append(toButton(auth, provider))
  find('email').hidden = !external.email
  find('or').hidden = !external.email || providers.length === 0
  find('ways').hidden = false
  if (!external.email && providers.length === 0) fail('No way to sign in is switched on in the Supabase project.')
}

/** @param {Auth} auth @param {string} provider */
function toButton(auth, provider) {
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'button plain wide'
  button.textContent = `Continue with ${NAMES[provider] ?? provider.replace(/^./, (first) => first.toUpperCase())}`
  button.addEventListener('click', async () => {
    const { error } = await auth.signInWithOAuth({ provider, options: { redirectTo: back } })
    if (error) fail(error.message)
  })
  return button
}

/** @param {Auth} auth @param {string} email */
async function sendLink(auth, email) {
  const { error } = await auth.signInWithOtp({ email, options: { emailRedirectTo: back } })
  if (error) return fail(error.message)
  for (const part of ['providers', 'or', 'email']) find(part).hidden = true
  find('sent').textContent = `A link is on its way to ${email}. Open it in this browser.`
  find('sent').hidden = false
}

async function run() {
  const auth = createAuth()
  if (!auth) return fail('The sign-in could not be loaded. Reload the page.')
  find('email').addEventListener('submit', (event) => {
    event.preventDefault()
    void sendLink(auth, String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get('email')))
  })
  const query = new URLSearchParams(location.search)
  const { data, error } = await auth.getSession()
  if (data.session) return finish(data.session)
  const problem = query.get('error_description') ?? error?.message
  if (problem) fail(problem)
  // What was asked for stays in the browser that asked (PKCE): a link that is opened elsewhere is of no use.
  else if (query.has('code'))
    fail('This link works only in the browser that asked for it, and once. Ask for a new one here.')
  await offer(auth)
}

run().catch((error) => fail(`Supabase cannot be reached: ${error.message} Reload the page to try again.`))
