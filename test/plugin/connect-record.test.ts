import assert from 'node:assert/strict'
import { mkdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { useServer } from './connect-server.ts'

describe('the record of connections', () => {
  const { app, withMachine } = useServer()

  test(
    'the server stays trusted while another project uses it, and when the listener had recorded it before',
    withMachine(async ({ machine, connect }) => {
      const second = join(machine.root, 'second')
      await mkdir(second)
      const origins = async () => JSON.parse(await readFile(join(machine.configFolder, 'origins.json'), 'utf8')).origins
      await connect()
      await connect({ folder: second, as: 'frontend' })
      await machine.run(['disconnect'])
      assert.deepEqual(await origins(), [app.url])
      await machine.run(['disconnect'], { folder: second })
      await assert.rejects(origins(), { code: 'ENOENT' })
      await mkdir(machine.configFolder, { recursive: true, mode: 0o700 })
      await writeFile(join(machine.configFolder, 'origins.json'), JSON.stringify({ origins: [app.url] }), {
        mode: 0o600,
      })
      await connect()
      await machine.run(['disconnect'])
      assert.deepEqual(await origins(), [app.url])
    }),
  )

  test(
    'two projects that connect at the same moment are both known afterwards',
    withMachine(async ({ machine, connect }) => {
      const folders = await Promise.all(
        ['a', 'b', 'c'].map(async (name) => {
          await mkdir(join(machine.root, name))
          return join(machine.root, name)
        }),
      )
      const connected = await Promise.all(folders.map((folder) => connect({ folder })))
      assert.deepEqual(
        connected.map(({ code }) => code),
        [0, 0, 0],
      )
      const undone = await Promise.all(folders.map((folder) => machine.run(['disconnect'], { folder })))
      assert.deepEqual(
        undone.map(({ code }) => code),
        [0, 0, 0],
      )
      assert.deepEqual(await machine.listFiles(), {})
    }),
  )

  test(
    'a folder of the user that is none is one sentence, and nothing is half done',
    withMachine(async ({ machine, connect }) => {
      await mkdir(join(machine.root, '.config'))
      await writeFile(machine.configFolder, 'in the way')
      await machine.write('.mcp.json', '{}')
      const before = await machine.listFiles()
      const { code, json } = await connect({}, '--json')
      assert.deepEqual([code, json.error.code], [1, 'system'])
      assert.match(json.error.message, /EEXIST/)
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  test(
    'waits for another connect that is at work',
    withMachine(async ({ machine, connect }) => {
      await mkdir(machine.configFolder, { recursive: true })
      const lock = join(machine.configFolder, 'connections.lock')
      await writeFile(lock, '')
      const connecting = connect()
      await new Promise((resolve) => setTimeout(resolve, 1_500))
      assert.ok(!('/project/.mcp.json' in (await machine.listFiles())))
      await rm(lock)
      assert.equal((await connecting).code, 0)
    }),
  )

  test(
    'a lock that a killed connect has left behind holds nobody for ever',
    withMachine(async ({ machine, connect }) => {
      await mkdir(machine.configFolder, { recursive: true })
      const lock = join(machine.configFolder, 'connections.lock')
      await writeFile(lock, '')
      await utimes(lock, 0, 0)
      assert.equal((await connect()).code, 0)
      await assert.rejects(stat(lock), { code: 'ENOENT' })
    }),
  )

  test(
    'a record of connections that is damaged is named, and nothing is changed',
    withMachine(async ({ machine, connect }) => {
      await connect()
      const record = join(machine.configFolder, 'connections.json')
      await rename(record, `${record}.old`)
      await writeFile(record, '{')
      const before = await machine.listFiles()
      const { code, stderr } = await machine.run(['disconnect'])
      assert.equal(code, 1)
      assert.match(stderr, /connections\.json is damaged\. Nothing was changed\./)
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )
})
