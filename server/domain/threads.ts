import { z } from 'zod'

/** A slug that belongs to the set of its participants: the same slug among other agents is another thread. */
export const ThreadSlug = z.string().regex(/^[a-z0-9-]{1,64}$/, 'a thread is 1 to 64 of a-z, 0-9 and hyphen')
