/** Features that no page uses; copying is the one that some do. */
const OFF = 'accelerometer camera display-capture geolocation gyroscope magnetometer microphone midi payment usb'
  .split(' ')
  .map((feature) => `${feature}=()`)

const FIXED = {
  // A form of ours must send its Origin, which `no-referrer` would turn into "null"; nothing goes to other sites with this one either.
  'referrer-policy': 'same-origin',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': [...OFF, 'clipboard-write=(self)'].join(', '),
  'x-robots-tag': 'noindex',
}

/** Nothing inline, nothing from elsewhere, in no frame; scripts may call this server and the `origins`. */
export function securityHeaders(origins: readonly string[] = []): Record<string, string> {
  const policy = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    `connect-src ${["'self'", ...origins].join(' ')}`,
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ]
  return { ...FIXED, 'content-security-policy': policy.join('; ') }
}
