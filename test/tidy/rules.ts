import { deadFileRules } from './dead-files.ts'
import { habitRules } from './habits.ts'
import { layerRules } from './layers.ts'
import { nameRules } from './names.ts'
import type { Rule } from './tree.ts'

export const rules: Rule[] = [...layerRules, ...nameRules, ...deadFileRules, ...habitRules]
