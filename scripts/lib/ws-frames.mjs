/**
 * WebSocket frames as bytes (RFC 6455 §5): a parser that is a pure state machine, and the encoder of a client.
 * No socket and no clock: what goes in is a chunk, what comes out is a list of events.
 */
import { Buffer, isUtf8 } from 'node:buffer'
import { Utf8Checker } from './ws-utf8.mjs'

export const MESSAGE_BYTES_MAX = 16 * 1024 * 1024
/** RFC 6455 §5.5: a control frame carries at most 125 bytes and is never fragmented. */
const CONTROL_BYTES_MAX = 125
/** What a message that comes in several pieces gets at first. */
const GROWN_BYTES_MIN = 1024

export const OPCODE = Object.freeze({ continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 })

/** The two bytes of a header are read apart, so that each is refused as soon as it is there. */
const STATE = Object.freeze({ first: 0, second: 1, length16: 2, length64: 3, payload: 4, ended: 5 })
const FIELD_BYTES = [1, 1, 2, 8]

/**
 * @typedef {{ type: 'text', text: string }
 *   | { type: 'binary', data: Buffer }
 *   | { type: 'ping' | 'pong', data: Buffer }
 *   | { type: 'close', code: number, reason: string }
 *   | { type: 'violation', code: number, message: string }} FrameEvent
 *   A close without a code is 1005 (§7.1.5). After `close` or `violation` the parser takes nothing more.
 */

/** Bytes collected piece by piece: it grows by what has arrived, never by what a header claims, and at most to a limit. */
class Assembly {
  /** @type {Buffer} */
  #bytes = Buffer.alloc(0)
  #bytesMax
  length = 0

  /** @param {number} bytesMax nobody appends more */
  constructor(bytesMax) {
    this.#bytesMax = bytesMax
  }

  /** @param {Uint8Array} piece */
  append(piece) {
    const needed = this.length + piece.length
    if (needed > this.#bytes.length) this.#grow(needed)
    this.#bytes.set(piece, this.length)
    this.length = needed
  }

  /** Doubling keeps the copying linear; what comes in one piece, as most messages do, gets its size. @param {number} needed */
  #grow(needed) {
    const roomy = this.length === 0 ? needed : Math.max(needed, this.#bytes.length * 2, GROWN_BYTES_MIN)
    const grown = Buffer.allocUnsafe(Math.min(roomy, this.#bytesMax))
    this.#bytes.copy(grown, 0, 0, this.length)
    this.#bytes = grown
  }

  take() {
    const taken = this.#bytes.subarray(0, this.length)
    this.#bytes = Buffer.alloc(0)
    this.length = 0
    return taken
  }
}

/** Parses what a server sends. `push` never throws. */
export class FrameParser {
  /** @type {number} */
  #state = STATE.first
  #field = Buffer.alloc(8)
  #fieldLength = 0
  #message
  #control = new Assembly(CONTROL_BYTES_MAX)
  /** Whole at the end of each text message: one serves them all. */
  #utf8 = new Utf8Checker()
  #messageBytesMax
  /** Opcode of the message being collected; 0 between messages. */
  #messageOpcode = 0
  #opcode = 0
  #isFinal = false
  #payloadLeft = 0
  /** @type {FrameEvent[]} */
  #events = []

  /** @param {{ messageBytesMax?: number }} [options] */
  constructor({ messageBytesMax = MESSAGE_BYTES_MAX } = {}) {
    this.#messageBytesMax = messageBytesMax
    this.#message = new Assembly(messageBytesMax)
  }

  /**
   * @param {Uint8Array} chunk any number of bytes, cut anywhere
   * @returns {FrameEvent[]}
   */
  push(chunk) {
    this.#events = []
    let offset = 0
    while (offset < chunk.length && this.#state !== STATE.ended) {
      offset += this.#state === STATE.payload ? this.#takePayload(chunk, offset) : this.#takeField(chunk, offset)
    }
    return this.#events
  }

  /** @param {Uint8Array} chunk @param {number} offset @returns {number} bytes consumed */
  #takeField(chunk, offset) {
    const wanted = /** @type {number} */ (FIELD_BYTES[this.#state])
    const piece = chunk.subarray(offset, offset + wanted - this.#fieldLength)
    this.#field.set(piece, this.#fieldLength)
    this.#fieldLength += piece.length
    if (this.#fieldLength === wanted) {
      this.#fieldLength = 0
      if (this.#state === STATE.first) this.#readFirst(this.#field.readUInt8(0))
      else if (this.#state === STATE.second) this.#readSecond(this.#field.readUInt8(0))
      else if (this.#state === STATE.length16) this.#readLength16(this.#field)
      else this.#readLength64(this.#field)
    }
    return piece.length
  }

  /** @param {number} byte §5.2: FIN, RSV1-3, opcode */
  #readFirst(byte) {
    this.#isFinal = (byte & 0x80) !== 0
    this.#opcode = byte & 0x0f
    const problem = (byte & 0x70) !== 0 ? 'reserved bits are set without an extension' : this.#findOpcodeProblem()
    if (problem !== null) this.#violate(1002, problem)
    else this.#state = STATE.second
  }

  /** @returns {string | null} */
  #findOpcodeProblem() {
    const opcode = this.#opcode
    if (opcode > OPCODE.pong || (opcode > OPCODE.binary && opcode < OPCODE.close)) return `unknown opcode ${opcode}`
    if (opcode >= OPCODE.close) return this.#isFinal ? null : 'a control frame is fragmented'
    const isInside = this.#messageOpcode !== 0
    if (opcode === OPCODE.continuation) return isInside ? null : 'a continuation without a message'
    return isInside ? 'a new message inside a fragmented one' : null
  }

  /** @param {number} byte §5.2: MASK, 7-bit length */
  #readSecond(byte) {
    const length = byte & 0x7f
    const isControl = this.#opcode >= OPCODE.close
    if ((byte & 0x80) !== 0) this.#violate(1002, 'a server frame is masked')
    else if (isControl && length > CONTROL_BYTES_MAX) this.#violate(1002, 'a control frame is longer than 125 bytes')
    else if (this.#opcode === OPCODE.close && length === 1) this.#violate(1002, 'a close frame of one byte')
    else if (length === 126) this.#state = STATE.length16
    else if (length === 127) this.#state = STATE.length64
    else this.#startPayload(length)
  }

  /** @param {Buffer} bytes */
  #readLength16(bytes) {
    const length = bytes.readUInt16BE(0)
    // §5.2: "the minimal number of bytes MUST be used to encode the length".
    if (length < 126) this.#violate(1002, 'the length is not minimal')
    else this.#startPayload(length)
  }

  /** @param {Buffer} bytes */
  #readLength64(bytes) {
    const length = bytes.readBigUInt64BE(0)
    if (length >= 1n << 63n) this.#violate(1002, 'the top bit of the length is set')
    else if (length < 65536n) this.#violate(1002, 'the length is not minimal')
    else if (length > BigInt(this.#messageBytesMax)) this.#violate(1009, 'the message is too long')
    else this.#startPayload(Number(length))
  }

  /** @param {number} length */
  #startPayload(length) {
    if (this.#opcode < OPCODE.close) {
      if (this.#message.length + length > this.#messageBytesMax) {
        this.#violate(1009, 'the message is too long')
        return
      }
      if (this.#opcode !== OPCODE.continuation) this.#messageOpcode = this.#opcode
    }
    this.#payloadLeft = length
    this.#state = STATE.payload
    if (length === 0) this.#finishFrame()
  }

  /** @param {Uint8Array} chunk @param {number} offset @returns {number} bytes consumed */
  #takePayload(chunk, offset) {
    const piece = chunk.subarray(offset, offset + this.#payloadLeft)
    this.#payloadLeft -= piece.length
    if (this.#opcode >= OPCODE.close) this.#control.append(piece)
    // §8.1: text that has become invalid is refused at once, not when a message of many megabytes has come whole.
    else if (this.#messageOpcode === OPCODE.text && !this.#utf8.push(piece)) {
      this.#violate(1007, 'a text message is not UTF-8')
      return piece.length
    } else this.#message.append(piece)
    if (this.#payloadLeft === 0) this.#finishFrame()
    return piece.length
  }

  #finishFrame() {
    this.#state = STATE.first
    if (this.#opcode === OPCODE.ping) this.#events.push({ type: 'ping', data: this.#control.take() })
    else if (this.#opcode === OPCODE.pong) this.#events.push({ type: 'pong', data: this.#control.take() })
    else if (this.#opcode === OPCODE.close) this.#finishClose(this.#control.take())
    else if (this.#isFinal) this.#finishMessage(this.#message.take())
  }

  /** @param {Buffer} data */
  #finishMessage(data) {
    const opcode = this.#messageOpcode
    this.#messageOpcode = 0
    if (opcode === OPCODE.binary) this.#events.push({ type: 'binary', data })
    else if (this.#utf8.isWhole) this.#events.push({ type: 'text', text: data.toString('utf8') })
    else this.#violate(1007, 'a text message ends inside a character')
  }

  /** @param {Buffer} data §5.5.1, §7.4 */
  #finishClose(data) {
    if (data.length === 0) return this.#end({ type: 'close', code: 1005, reason: '' })
    const code = data.readUInt16BE(0)
    const reason = data.subarray(2)
    if (!isCloseCode(code)) return this.#violate(1002, `close code ${code} is not valid on the wire`)
    if (!isUtf8(reason)) return this.#violate(1007, 'a close reason is not UTF-8')
    this.#end({ type: 'close', code, reason: reason.toString('utf8') })
  }

  /** @param {number} code @param {string} message */
  #violate(code, message) {
    this.#end({ type: 'violation', code, message })
  }

  /** @param {FrameEvent} event */
  #end(event) {
    this.#events.push(event)
    this.#state = STATE.ended
    this.#message.take()
    this.#control.take()
  }
}

/**
 * Whether a close frame may carry the code (RFC 6455 §7.4 and the IANA registry: 1004, 1005, 1006, 1015 are never sent).
 * @param {number} code
 */
export function isCloseCode(code) {
  if (code >= 3000 && code <= 4999) return true
  return code >= 1000 && code <= 1014 && code !== 1004 && code !== 1005 && code !== 1006
}

/**
 * One whole client frame, masked as §5.3 demands.
 * @param {number} opcode
 * @param {Uint8Array} payload
 * @param {Uint8Array} mask four unpredictable bytes
 * @returns {Buffer}
 */
export function encodeFrame(opcode, payload, mask) {
  const extra = payload.length < 126 ? 0 : payload.length < 65536 ? 2 : 8
  const frame = Buffer.allocUnsafe(2 + extra + 4 + payload.length)
  frame[0] = 0x80 | opcode
  frame[1] = 0x80 | (extra === 0 ? payload.length : extra === 2 ? 126 : 127)
  if (extra === 2) frame.writeUInt16BE(payload.length, 2)
  if (extra === 8) frame.writeBigUInt64BE(BigInt(payload.length), 2)
  frame.set(mask, 2 + extra)
  const start = 2 + extra + 4
  for (let i = 0; i < payload.length; i++) {
    frame[start + i] = /** @type {number} */ (payload[i]) ^ /** @type {number} */ (mask[i & 3])
  }
  return frame
}

/**
 * The payload of a close frame; the reason is cut to 123 bytes at a character boundary.
 * @param {number} code @param {string} reason
 */
export function encodeClosePayload(code, reason) {
  let text = Buffer.from(reason, 'utf8')
  if (text.length > CONTROL_BYTES_MAX - 2) {
    text = text.subarray(0, CONTROL_BYTES_MAX - 2)
    while (!isUtf8(text)) text = text.subarray(0, -1)
  }
  const payload = Buffer.alloc(2 + text.length)
  payload.writeUInt16BE(code, 0)
  payload.set(text, 2)
  return payload
}
