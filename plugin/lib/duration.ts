const UNITS: Record<string, number> = { '': 1, s: 1, m: 60, h: 3_600, d: 86_400 }

/** `90`, `90s`, `5m`, `2h` or `7d` in seconds; null for nothing and for what is no duration. */
export function parseSeconds(text: string): number | null {
  const [, count = '', unit = ''] = /^(\d{1,7})([smhd]?)$/.exec(text) ?? []
  return Number(count) * (UNITS[unit] ?? 0) || null
}
