import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createLoginLink } from '../../server/domain/people.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createBrowser, signIn } from '../helpers/dashboard.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

describe('the session of a person', () => {
  let database: TestDatabase
  let app: TestApp
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  test('starts with a link that says who you will be, and whose button signs in', async () => {
    const { code } = await createLoginLink(database.admin)
    const browser = createBrowser(app)
    const page = await browser.get(`/login/${code}`)
    assert.equal(page.status, 200)
    assert.match(page.text, /You will be owner/)
    const answer = await browser.post(`/login/${code}`)
    assert.deepEqual([answer.status, answer.location], [303, '/'])
    const home = await browser.get('/')
    assert.match(home.text, /You are signed in as owner\./)
    assert.match(home.text, /Name your first namespace/)
    assert.doesNotMatch((await browser.get('/')).text, /You are signed in as/, 'a message is shown once')
  })

  test('founds a namespace and shows it', async () => {
    const browser = await signIn(app, database)
    await browser.get('/')
    const answer = await browser.post('/namespaces', { name: 'acme' })
    assert.deepEqual([answer.status, answer.location], [303, '/n/acme/agents'])
    assert.match((await browser.get('/')).text, /acme/)
  })
})
