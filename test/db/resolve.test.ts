import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createResolver } from '../../server/db/resolve.ts'
import { revokeToken } from '../../server/domain/tokens.ts'
import type { PatchcordError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'

describe('tokens that are asked for at once', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  test('each is who it is, and one that may not enter is refused alone', async () => {
    const names = Array.from({ length: 64 }, (_, index) => `a${index}`)
    const agents = Object.values(await seed(database, 'many', names))
    for (const { tokenId } of agents.slice(0, 8)) await revokeToken(database.admin, tokenId)
    const resolve = createResolver(database.api)
    for (let round = 0; round < 5; round++) {
      const found = await Promise.all(
        agents.map(({ tokenHash }) =>
          resolve(tokenHash).then(
            ({ agentId }) => agentId,
            ({ code }: PatchcordError) => code,
          ),
        ),
      )
      assert.deepEqual(
        found,
        agents.map(({ agentId }, index) => (index < 8 ? 'token_revoked' : agentId)),
      )
    }
    const unknown = await Promise.allSettled(['00', '01'].map((hash) => resolve(hash)))
    assert.deepEqual(
      unknown.map((each) => each.status === 'rejected' && each.reason.code),
      ['token_rejected', 'token_rejected'],
    )
  })

  test('a revocation that is committed binds whoever asks after it, in the middle of others', async () => {
    const { alice, bob } = await seed(database, 'revoked', ['alice', 'bob'])
    const resolve = createResolver(database.api)
    const before = Array.from({ length: 20 }, () => resolve(bob.tokenHash))
    await revokeToken(database.admin, alice.tokenId)
    const asked = [resolve(bob.tokenHash), resolve(alice.tokenHash), resolve(bob.tokenHash)]
    const [first, refused, last] = await Promise.allSettled(asked)
    assert.deepEqual([first?.status, refused?.status, last?.status], ['fulfilled', 'rejected', 'fulfilled'])
    assert.equal((await Promise.all(before)).length, 20)
  })
})
