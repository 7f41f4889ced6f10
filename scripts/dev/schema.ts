// `npm run schema` writes supabase/schema.sql from the migrations; with --check it fails where the file differs.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { connect } from '../../server/db/connect.ts'
import { startEmbedded } from '../../server/db/embedded/index.ts'
import { supabaseFolder } from '../../server/db/migrate.ts'
import { describeSchema } from './schema-picture.ts'

const { values } = parseArgs({ options: { check: { type: 'boolean' }, native: { type: 'string' } } })
const path = join(supabaseFolder(), 'schema.sql')
const picture = await drawFromMigrations(values.native)

if (!values.check) {
  await writeFile(path, picture)
} else if (picture !== (await readFile(path, 'utf8').catch(() => ''))) {
  console.error(`${relative(process.cwd(), path)} is not what the migrations make: run \`npm run schema\`.`)
  process.exitCode = 1
}

async function drawFromMigrations(nativeDir: string | undefined): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'patchcord-schema-'))
  try {
    const embedded = await startEmbedded({ dataDir, nativeDir, settings: { fsync: 'off' }, log: () => {} })
    const sql = connect(embedded.admin, { max: 1, applicationName: 'schema' })
    try {
      return await describeSchema(sql)
    } finally {
      await sql.end()
      await embedded.stop()
    }
  } finally {
    await rm(dataDir, { recursive: true, force: true })
  }
}
