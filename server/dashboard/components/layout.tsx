import type { FastifyRequest } from 'fastify'
import type { Child, PropsWithChildren } from 'hono/jsx'
import type { Member, MemberRole } from '../../db/scope.ts'
import { type AssetName, assetPath } from '../assets.ts'
import type { PageContext, Theme } from '../page.ts'
import { Notice } from './parts.tsx'
import { Text } from './text.tsx'
import { formatRelative } from './time.tsx'

const TABS = {
  agents: 'Agents',
  messages: 'Messages',
  tokens: 'Tokens',
  activity: 'Activity',
  members: 'Members',
  audit: 'Audit',
  settings: 'Settings',
} as const
export type Tab = keyof typeof TABS

const THEMES: Record<Theme, string> = { auto: 'Auto', light: 'Light', dark: 'Dark' }
/** As public/live.js writes it. */
const PAUSED_TITLE = 'This namespace is paused'
const SCRIPTS: readonly AssetName[] = ['copy.js', 'live.js', 'secret.js', 'theme.js']

export interface LayoutProps {
  request: Pick<FastifyRequest, 'page'>
  title: string
  /** The namespace that the page belongs to: its name and tabs are shown. */
  namespace?: Pick<Member, 'namespace' | 'pausedAt'> & { role?: MemberRole }
  tab?: Tab
  /** Beside the page's heading: its primary action. */
  action?: Child
  /** `narrow` for sign-in and other pages of one form. */
  width?: 'narrow' | 'wide'
  /** The page writes its own h1. */
  hideTitle?: boolean
  scripts?: readonly AssetName[]
}

/** The frame of every page: skip link, header, tabs of a namespace, the message of the request before, one h1, footer. */
export function Layout(props: PropsWithChildren<LayoutProps>) {
  const { page } = props.request
  const title = [props.title, props.namespace?.namespace, 'Patchcord'].filter(Boolean).join(' · ')
  return (
    <html lang="en" data-theme={page.theme}>
      <Head title={title} page={page} scripts={[...SCRIPTS, ...(props.scripts ?? [])]} />
      <body>
        <a class="skip" href="#main">
          Skip to content
        </a>
        <Header {...props} />
        <main id="main" class={props.width ?? 'wide'} tabindex={-1}>
          {page.flash && (
            <Notice kind="good">
              <p>
                <Text value={page.flash} inline />
              </p>
            </Notice>
          )}
          {props.namespace && <Paused {...props} />}
          {!props.hideTitle && (
            <div class="title">
              <h1>{props.title}</h1>
              {props.action}
            </div>
          )}
          {props.children}
        </main>
        <Footer page={page} />
      </body>
    </html>
  )
}

function Head(props: { title: string; page: PageContext; scripts: readonly AssetName[] }) {
  const { theme } = props.page
  return (
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta name="color-scheme" content={theme === 'auto' ? 'light dark' : theme} />
      <title>{props.title}</title>
      <link rel="icon" type="image/svg+xml" href={assetPath('icon.svg')} />
      <link rel="stylesheet" href={assetPath('app.css')} />
      {props.scripts.map((name) => (
        <script src={assetPath(name)} defer></script>
      ))}
    </head>
  )
}

function Header(props: LayoutProps) {
  const { page } = props.request
  return (
    <header class="top">
      <div class="bar">
        <nav class="trail" aria-label="Place">
          <a class="brand" href="/" aria-label="Patchcord, your namespaces">
            <Mark />
            <span>Patchcord</span>
          </a>
          {props.namespace && (
            <>
              <span class="slash" aria-hidden="true">
                /
              </span>
              <a class="place" href={`/n/${props.namespace.namespace}/agents`}>
                {props.namespace.namespace}
              </a>
            </>
          )}
        </nav>
        {page.isSignedIn && (
          <a class="me" href="/account">
            <span class="sr">Account: </span>
            <Text value={page.me.name} inline />
          </a>
        )}
      </div>
      {props.namespace && <Tabs namespace={props.namespace.namespace} tab={props.tab} />}
    </header>
  )
}

function Tabs(props: { namespace: string; tab: Tab | undefined }) {
  return (
    <nav class="tabs" aria-label={`Namespace ${props.namespace}`}>
      <ul>
        {Object.entries(TABS).map(([tab, label]) => (
          <li>
            <a href={`/n/${props.namespace}/${tab}`} aria-current={tab === props.tab ? 'page' : undefined}>
              {label}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  )
}

/** Always there: public/live.js shows and hides it, as the fragments say. On Settings the page itself has the switch. */
function Paused({ namespace, tab, request }: LayoutProps) {
  const pausedAt = namespace?.pausedAt ?? null
  const canResume = tab === 'settings' && namespace?.role !== undefined && namespace.role !== 'member'
  return (
    <div class="notice warn" role="status" data-paused hidden={pausedAt === null}>
      <p class="notice-title">{pausedAt !== null && PAUSED_TITLE}</p>
      <p>{describePause(pausedAt, request.page.now, canResume)}</p>
    </div>
  )
}

/** What stands under the title while a namespace is paused; nothing while it runs. */
export function describePause(pausedAt: string | null, now: Date, canResume = false): string {
  if (pausedAt === null) return ''
  const at = new Date(pausedAt)
  const relative = formatRelative(at, now)
  const since = /^\d+ [A-Z]/.test(relative) ? `on ${relative}` : relative
  const who = canResume ? 'You can resume it below.' : 'An owner or an admin can resume it in Settings.'
  return `Paused ${since}: nothing is sent, and nobody is woken. ${who}`
}

function Footer({ page }: { page: PageContext }) {
  return (
    <footer class="foot">
      <p>Patchcord {page.version}</p>
      <form method="post" action="/theme" class="themes" data-themes>
        <input type="hidden" name="csrf" value={page.csrf} />
        <input type="hidden" name="next" value={page.path} />
        <fieldset>
          <legend>Theme</legend>
          {Object.entries(THEMES).map(([theme, label]) => (
            <button type="submit" name="theme" value={theme} aria-pressed={theme === page.theme ? 'true' : 'false'}>
              {label}
            </button>
          ))}
        </fieldset>
      </form>
    </footer>
  )
}

/** Two plugs and the cord between them. */
function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" focusable="false">
      <path
        d="M6 8.5v3.5a6 6 0 0 0 12 0V12"
        fill="none"
        stroke="currentColor"
        stroke-width="2.2"
        stroke-linecap="round"
      />
      <circle cx="6" cy="5.5" r="3" fill="currentColor" />
      <circle cx="18" cy="8.5" r="3" fill="currentColor" />
    </svg>
  )
}
