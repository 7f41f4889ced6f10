/** Texts of many kinds, natural and hostile, each the same in every run: what they take in tokens is very different. */
export const TEXTS: Readonly<Record<string, string>> = makeTexts()

function makeTexts(): Record<string, string> {
  const random = createRandom(20261129)
  const of = (alphabet: string, count = 3_000) => many(count, () => alphabet.charAt(random(alphabet.length)))
  const between = (first: number, end: number, count = 1_500) =>
    many(count, () => String.fromCodePoint(first + random(end - first)))
  const words = (make: () => string, count = 500) => many(count, () => `${make()} `)
  const lower = 'abcdefghijklmnopqrstuvwxyz'
  const upper = lower.toUpperCase()
  const marks = '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~'
  return {
    english:
      'The migration is done on staging; two tests of the billing service fail since then, and I have not found out why. '.repeat(
        25,
      ),
    code: '  const answer = await callEntry(scope, (sql) => sql.send_message(hash, [to], null, content))\n'.repeat(25),
    json: '{"message_id":"01234567-89ab-7cde-8f01-23456789abcd","from":"bob","at":"2026-11-29T20:00:00.123Z"},\n'.repeat(
      25,
    ),
    german:
      'Die Übertragung der Schlüssel muss unverzüglich geprüft werden, sagt die Donaudampfschifffahrtsgesellschaft. '.repeat(
        25,
      ),
    russian: 'Сообщение было доставлено получателю, но подтверждение ещё не пришло; проверьте журнал. '.repeat(30),
    japanese: 'メッセージは相手の受信箱に届きましたが、まだ読まれていません。サーバーを再起動してください。'.repeat(40),
    korean: '메시지가 상대방의 받은 편지함에 도착했지만 아직 읽지 않았습니다. '.repeat(50),
    letters: of(lower),
    mixedCase: of(lower + upper),
    base64: of(`${lower}${upper}0123456789+/`),
    hex: of('0123456789abcdef'),
    marks: of(marks),
    printable: of(`${lower}${upper}${marks}0123456789`),
    digits: of('0123456789'),
    spacedDigits: words(() => of('0123456789', 1), 1_500),
    spacedLetters: words(() => of(lower, 1), 1_500),
    nonsense: words(() => of(lower, 1 + random(9))),
    whiteSpace: of('\n\t \r', 2_000),
    indented: many(300, () => `\n${' '.repeat(random(12))}x`),
    latin: between(0xc0, 0x100),
    greek: between(0x3b1, 0x3c9),
    cyrillic: between(0x430, 0x450),
    arabic: between(0x627, 0x64a),
    hindi: between(0x904, 0x94d),
    thai: between(0xe01, 0xe3a),
    cherokee: between(0x13a0, 0x13f4),
    han: between(0x4e00, 0x9fa5),
    hangul: between(0xac00, 0xd7a3),
    emoji: between(0x1f300, 0x1f64f),
    hieroglyphs: between(0x13000, 0x13400),
    repeated: 'x'.repeat(4_000),
  }
}

function many(count: number, make: () => string): string {
  return Array.from({ length: count }, make).join('')
}

/** Whole numbers below a bound: a linear congruence, whose high bits are good enough. */
function createRandom(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff
    return Math.floor((state / 0x80000000) * below)
  }
}
