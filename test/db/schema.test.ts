import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { describeSchema } from '../../scripts/dev/schema-picture.ts'
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
