import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { ScriptedServer } from '../helpers/scripted-server.ts'
import { createCertificate } from './certificate.ts'
import { eventually, Home } from './listener-process.ts'

test('over TLS everything works where the certificate is trusted, and no token is sent where it is not', async (context) => {
  const tls = createCertificate()
  const server = await new ScriptedServer({}, tls).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  for (const env of [{}, { NODE_TLS_REJECT_UNAUTHORIZED: '0' }]) {
    const stranger = home.start({ env })
    await stranger.logged(/^subscribe: ticket refresh failed: .*self-signed certificate/m)
    await stranger.stop()
  }
  assert.equal(server.requests.length, 0)
  const file = join(home.root, 'ca.pem')
  await writeFile(file, tls.cert)
  const listener = home.start({ env: { NODE_EXTRA_CA_CERTS: file } })
  await listener.logged(/^subscribe: connected$/m)
  server.deliver('alice')
  await listener.line('PATCHCORD: 1 new from alice')
  // The calls after the first are spared the certificates.
  await eventually(() => server.resumedCount >= 2)
})
