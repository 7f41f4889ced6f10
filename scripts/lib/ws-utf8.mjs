/** UTF-8 that comes in pieces cut anywhere: refused at the first byte that no valid text could have there. */
import { isUtf8 } from 'node:buffer'

/** State of one text; the bounds of the next byte are those of RFC 3629 §4, which leave no surrogates and no long forms. */
export class Utf8Checker {
  /** Bytes that the character begun still lacks. */
  #missing = 0
  #lower = 0x80
  #upper = 0xbf

  /** Whether the text could end here. */
  get isWhole() {
    return this.#missing === 0
  }

  /**
   * @param {Uint8Array} piece
   * @returns {boolean} false: the text is not UTF-8, whatever follows; the checker is then of no use any more
   */
  push(piece) {
    let start = 0
    while (this.#missing > 0 && start < piece.length) {
      if (!this.#take(/** @type {number} */ (piece[start]))) return false
      start += 1
    }
    // A loop over every byte is many times slower than isUtf8, which wants whole characters.
    const end = Math.max(start, findLastCharacter(piece))
    return isUtf8(piece.subarray(start, end)) && piece.subarray(end).every((byte) => this.#take(byte))
  }

  /** @param {number} byte */
  #take(byte) {
    if (this.#missing === 0) return this.#begin(byte)
    if (byte < this.#lower || byte > this.#upper) return false
    this.#lower = 0x80
    this.#upper = 0xbf
    this.#missing -= 1
    return true
  }

  /** @param {number} byte */
  #begin(byte) {
    if (byte < 0x80) return true
    if (byte < 0xc2 || byte > 0xf4) return false
    this.#missing = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3
    if (byte === 0xe0) this.#lower = 0xa0
    if (byte === 0xed) this.#upper = 0x9f
    if (byte === 0xf0) this.#lower = 0x90
    if (byte === 0xf4) this.#upper = 0x8f
    return true
  }
}

/** Where the last character begins if it may lack bytes, else the end. @param {Uint8Array} piece */
function findLastCharacter(piece) {
  for (let back = 1; back <= Math.min(3, piece.length); back++) {
    const byte = /** @type {number} */ (piece[piece.length - back])
    if (byte >= 0xc0) return piece.length - back
    if (byte < 0x80) break
  }
  return piece.length
}
