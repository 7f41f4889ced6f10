import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { describeBrowser } from '../../server/dashboard/browser.ts'
import { formatRelative, Text } from '../../server/dashboard/components/index.ts'
import { NOBODY, type PageContext } from '../../server/dashboard/page.ts'
import { fragmentPath } from '../../server/dashboard/paths.ts'
import { readText } from '../helpers/dashboard.ts'
import { HOSTILE, KitchenSink } from '../helpers/kitchen-sink.tsx'

const NOW = new Date('2026-11-30T12:00:00Z')

async function renderSink(page: Partial<PageContext> = {}): Promise<string> {
  const context: PageContext = {
    ...{ csrf: 'form"token', path: '/sink?q=<x>', me: { ...NOBODY, name: HOSTILE }, isSignedIn: true, theme: 'auto' },
    ...{ origin: 'http://localhost', flash: HOSTILE, version: '1.2.3', now: NOW },
    ...page,
  }
  return String(await KitchenSink({ request: { page: context } }))
}

describe('the components of a page', () => {
  test('show text as text, with what is invisible made visible', async () => {
    const html = await renderSink()
    assert.doesNotMatch(html, /<script>/)
    assert.equal(
      (html.match(/&lt;script&gt;alert\(&#39;1&#39;\)&lt;\/script&gt;/g) ?? []).length,
      3,
      'name, message, text',
    )
    assert.doesNotMatch(html, /[\u202a-\u202e\u200b]/u)
    assert.match(html, /title="An invisible character: U\+202E"/)
  })

  test('have one h1, landmarks, a skip link, and a token in every form that changes something', async () => {
    const html = await renderSink()
    for (const tag of ['h1', 'main', 'header', 'footer'])
      assert.equal((html.match(new RegExp(`<${tag}[ >]`, 'g')) ?? []).length, 1, tag)
    assert.match(html, /<a class="skip" href="#main">/)
    const forms = html.match(/<form [^>]*method="post"[^>]*><input [^>]*>/g) ?? []
    assert.ok(forms.length >= 7)
    for (const form of forms) assert.match(form, /name="csrf" value="form&quot;token"/)
    const ids = Array.from(html.matchAll(/ id="([^"]+)"/g), ([, id]) => id)
    assert.deepEqual(ids, [...new Set(ids)])
  })

  test('need no inline style or script', async () => {
    assert.doesNotMatch(await renderSink(), /\sstyle=|<style|\son\w+=|javascript:/)
  })

  test('say a state in words, with its evidence and its exact time', async () => {
    const text = readText(await renderSink())
    assert.match(text, /wakeable · lease renewed 12 s ago \(30 Nov 2026, 11:59:48 UTC\) · busy · Claude Code on lap-3/)
    assert.match(text, /online · no listener · last call 7 min ago .* · Codex/)
    assert.match(text, /offline · last seen 3 days ago/)
    assert.match(text, /offline · never connected/)
  })

  test('tell live.js where a part comes from, with the filters of the page', () => {
    assert.equal(fragmentPath('/n/acme/messages?q=a b', 'list'), '/n/acme/messages?q=a+b&fragment=list')
    assert.equal(fragmentPath('/n/acme/agents', 'list'), '/n/acme/agents?fragment=list')
  })
})

describe('a text of an agent', () => {
  const render = (value: string, inline = false) => String(Text({ value, inline }))
  const invisible: [string, string][] = [
    ['\u0000', 'U+0000'],
    ['\r', 'U+000D'],
    ['\u007f', 'U+007F'],
    ['\u00ad', 'U+00AD'],
    ['\u200b', 'U+200B'],
    ['\u2028', 'U+2028'],
    ['\u2066', 'U+2066'],
    ['\ufeff', 'U+FEFF'],
    ['\u3164', 'U+3164'],
    ['\u{e0041}', 'U+E0041'],
    ['\u{e0100}', 'U+E0100'],
  ]
  for (const [character, code] of invisible) {
    test(`has ${code} shown`, () => {
      const html = render(`a${character}b`)
      assert.equal(readText(html), `a${code}b`)
      assert.ok(!html.includes(character))
    })
  }
  test('of nothing but invisible characters is short, and says how many', () => {
    assert.equal(readText(render('\u200b'.repeat(700))), 'U+200B × 700')
    const html = render('a\u200b\u2066'.repeat(2_000), true)
    assert.ok(html.length < 12_000, String(html.length))
    assert.doesNotMatch(html, /[\u200b\u2066]/)
    assert.match(readText(html), /aU\+200BU\+2066a\ufffd\ufffda/)
  })
  test('keeps its lines, tabs, letters of every script and emoji', () => {
    const text = 'Zeile\n\teins — naïve 漢字 العربية 👩‍💻 ❤️'
    assert.ok(render(text).includes(text))
    assert.equal(readText(render('a \n b', true)), 'a b')
  })
  test('is folded when it is long, and nothing of it is lost', () => {
    for (const text of [
      'word '.repeat(500),
      'x'.repeat(3_000),
      'line\n'.repeat(60),
      '💻'.repeat(900),
      `${'y'.repeat(699)}💻${'z'.repeat(900)}`,
    ]) {
      const html = render(text)
      assert.match(html, /<details><summary>Show the other [\d,]+ characters<\/summary>/)
      const shown = Array.from(html.matchAll(/<div class="text" dir="auto">([^<]*)<\/div>/g), ([, part = '']) => part)
      assert.equal(shown.length, 2)
      assert.equal(shown.join('').replaceAll('\n', ''), text.replaceAll('\n', ''))
      for (const part of shown) assert.equal(Buffer.from(part).toString(), part, 'no emoji is cut in two')
    }
    assert.doesNotMatch(render('x'.repeat(800)), /<details>/, 'a fold that hides little is in the way')
  })
})

describe('times', () => {
  const cases: [string, string][] = [
    ['2026-11-30T11:59:59.500Z', 'just now'],
    ['2026-11-30T11:59:00.400Z', '1 min ago'],
    ['2026-11-30T11:59:48Z', '12 s ago'],
    ['2026-11-30T11:01:00Z', '59 min ago'],
    ['2026-11-29T13:00:00Z', '23 h ago'],
    ['2026-11-29T12:00:00Z', '1 day ago'],
    ['2026-11-18T12:00:00Z', '12 days ago'],
    ['2026-01-02T03:04:05Z', '2 Jan 2026'],
    ['2026-11-30T12:14:58Z', 'in 15 min'],
    ['2026-12-07T11:59:50Z', 'in 7 days'],
  ]
  for (const [at, expected] of cases) {
    test(`${at} is ${expected}`, () => assert.equal(formatRelative(new Date(at), NOW), expected))
  }
})

test('a browser is described in fixed words, whatever its header says', () => {
  const cases = {
    'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0': 'Firefox on Linux',
    'Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36 Edg/140.0':
      'Edge on Windows',
    'Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605 Version/19.0 Mobile/15E148 Safari/604.1':
      'Safari on iPhone',
    '<script>alert(1)</script>': 'A browser',
    '': 'A browser',
  }
  for (const [header, expected] of Object.entries(cases)) assert.equal(describeBrowser(header), expected)
})
