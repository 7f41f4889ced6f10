import { generateKeyPairSync, sign } from 'node:crypto'

/** A self-signed certificate for 127.0.0.1, made on the spot: X.509 v3 (RFC 5280) with an Ed25519 key (RFC 8410). */
export function createCertificate({ expiresInMs = 86_400_000 } = {}): { key: string; cert: string } {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const algorithm = der(0x30, oid(1, 3, 101, 112))
  const commonName = der(0x30, oid(2, 5, 4, 3), der(0x0c, Buffer.from('scripted server')))
  const name = der(0x30, der(0x31, commonName))
  const validity = der(0x30, utcTime(Date.now() - 2 * 86_400_000), utcTime(Date.now() + expiresInMs))
  // subjectAltName: iPAddress [7]
  const address = der(0x30, der(0x87, Buffer.from([127, 0, 0, 1])))
  const extension = der(0x30, oid(2, 5, 29, 17), der(0x04, address))
  const body = der(
    0x30,
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.from([1])),
    algorithm,
    name,
    validity,
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, der(0x30, extension)),
  )
  const signature = der(0x03, Buffer.from([0]), sign(null, body, privateKey))
  const cert = der(0x30, body, algorithm, signature).toString('base64')
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${cert.replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`,
  }
}

function der(tag: number, ...parts: Uint8Array[]): Buffer {
  const content = Buffer.concat(parts)
  const size = content.length
  const length = size < 128 ? [size] : size < 256 ? [0x81, size] : [0x82, size >> 8, size & 0xff]
  return Buffer.concat([Buffer.from([tag, ...length]), content])
}

/** Each arc below 128, as all of ours are. */
function oid(first: number, second: number, ...rest: number[]): Buffer {
  return der(0x06, Buffer.from([first * 40 + second, ...rest]))
}

function utcTime(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\D/g, '')
  return der(0x17, Buffer.from(`${digits.slice(2, 14)}Z`))
}
