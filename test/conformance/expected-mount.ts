import type { Expectation } from './helpers/results.ts'
import type { Revision } from './helpers/tool.ts'

const LEGACY: Expectation = {
  passes: {
    0: ['server-session-lifecycle', 'server-sse-multiple-streams', 'server-sse-polling'],
    1: ['elicitation-sep1034-defaults', 'elicitation-sep1330-enums', 'tools-call-elicitation', 'tools-call-sampling'],
    2: [
      'completion-complete',
      'dns-rebinding-protection',
      'logging-set-level',
      'ping',
      'prompts-get-embedded-resource',
      'prompts-get-simple',
      'prompts-get-with-args',
      'prompts-get-with-image',
      'prompts-list',
      'resources-list',
      'resources-read-binary',
      'resources-read-text',
      'resources-subscribe',
      'resources-templates-read',
      'resources-unsubscribe',
      'server-initialize',
      'tools-call-audio',
      'tools-call-embedded-resource',
      'tools-call-error',
      'tools-call-image',
      'tools-call-mixed-content',
      'tools-call-simple-text',
      'tools-call-with-logging',
      'tools-call-with-progress',
    ],
    3: ['tools-list'],
    8: ['json-schema-2020-12'],
  },
  baseline: {
    'a server without sessions does not get the answer to what it asks a client of the 2025 era': [
      'elicitation-sep1034-defaults:elicitation-sep1034-general',
      'elicitation-sep1330-enums:elicitation-sep1330-general',
      'tools-call-elicitation:tools-call-elicitation',
      'tools-call-sampling:tools-call-sampling',
    ],
    'it keeps nothing between requests, so it has no sessions to name and no streams to resume': [
      'server-sse-multiple-streams:server-sse-multiple-streams-session',
      'server-sse-polling:server-sse-polling-session',
      'server-sse-polling:server-sse-priming-event',
      'server-sse-polling:server-sse-retry-field',
    ],
  },
  code: 1,
}

const HEADERS = 'http-custom-header-server-validation'
const FOUR = ['input-required-result-multi-round', 'sep-2164-resource-not-found', 'tools-list']
const PASSES = {
  1: ['server-sse-multiple-streams'],
  2: [
    'completion-complete',
    'dns-rebinding-protection',
    'input-required-result-capability-check',
    'input-required-result-ignore-extra-params',
    'input-required-result-missing-input-response',
    'input-required-result-result-type',
    'input-required-result-tampered-state',
    'input-required-result-unsupported-methods',
    'prompts-get-embedded-resource',
    'prompts-get-simple',
    'prompts-get-with-args',
    'prompts-get-with-image',
    'prompts-list',
    'resources-list',
    'resources-read-binary',
    'resources-read-text',
    'resources-templates-read',
    'tools-call-audio',
    'tools-call-embedded-resource',
    'tools-call-error',
    'tools-call-image',
    'tools-call-mixed-content',
    'tools-call-simple-text',
    'tools-call-with-progress',
  ],
  3: [
    'input-required-result-basic-elicitation',
    'input-required-result-basic-list-roots',
    'input-required-result-basic-sampling',
    'input-required-result-multiple-input-requests',
    'input-required-result-non-tool-request',
    'input-required-result-request-state',
    'input-required-result-validate-input',
  ],
  8: ['caching', 'json-schema-2020-12'],
  14: ['http-header-validation'],
  28: ['server-stateless'],
}

/** What our mount passes with a McpServer behind it that has all that the scenarios look for. */
export const SINGLE: Record<Revision, Expectation> = {
  '2025-11-25': LEGACY,
  '2026-07-28': { passes: { ...PASSES, 4: FOUR, 10: [HEADERS] }, baseline: {}, code: 0 },
}

/** And with a Server, as the product has it, for many requests at once. No revision requires what is excused for 2026-07-28. */
export const SHARED: Record<Revision, Expectation> = {
  '2025-11-25': LEGACY,
  '2026-07-28': {
    passes: { ...PASSES, 4: [...FOUR, HEADERS] },
    baseline: {
      'the SDK compares these headers for its McpServer only, and no tool of ours has a parameter for one': [
        `${HEADERS}:sep-2243-server-reject-invalid-param-chars`,
        `${HEADERS}:sep-2243-server-reject-param-mismatch`,
        `${HEADERS}:sep-2243-server-validate-param-match`,
      ],
    },
    code: 0,
  },
}
