import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { describeSchema } from '../../scripts/dev/schema-picture.ts'
import { ARRAYS } from '../../server/db/connect.ts'
import { createTestDatabase } from '../helpers/database.ts'

test('supabase/schema.sql shows what the migrations make; `npm run schema` writes it', async () => {
  const database = await createTestDatabase()
  try {
    const shown = await readFile(new URL('../../supabase/schema.sql', import.meta.url), 'utf8')
    assert.equal(await describeSchema(database.admin), shown)
  } finally {
    await database.drop()
  }
})

/** What only other functions call: no connection passes their arrays. */
const INNER = ['insert_message', 'prepare_batch']

test('every array type that our functions and tables have is one that a connection reads and writes', async () => {
  const database = await createTestDatabase()
  try {
    const types = await database.admin`
      with used as (
        select unnest(coalesce(proallargtypes, proargtypes::oid[]) || prorettype) as type from pg_proc
        where pronamespace = 'patchcord'::regnamespace and proname::text <> all (${INNER}::text[])
        union
        select atttypid from pg_attribute join pg_class c on c.oid = attrelid
        where c.relnamespace = 'patchcord'::regnamespace and attnum > 0 and not attisdropped
      )
      select type::int as oid, format_type(type, null) as name from used join pg_type t on t.oid = type
      where t.typcategory = 'A' order by 1`
    assert.ok(types.length > 1)
    const known: number[] = Object.values(ARRAYS)
    const unknown = types.filter(({ oid }) => !known.includes(oid)).map(({ name }) => name)
    assert.deepEqual(unknown, [], 'ARRAYS in server/db/connect.ts names them')
  } finally {
    await database.drop()
  }
})
