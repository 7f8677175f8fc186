// Writes src/events.ts from the JSON Schema of the events. `--check` only reports whether it is up to date.
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const SCHEMA = new URL('../../src/rlm/records/events.schema.json', import.meta.url)
const PAGE = new URL('../src/events.ts', import.meta.url)

const BASIC = { string: 'string', integer: 'number', number: 'number', boolean: 'boolean', null: 'null' }

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split('/').at(-1)
  if (schema.anyOf) return [...new Set(schema.anyOf.map(typeOf))].join(' | ')
  if (schema.enum) return schema.enum.map((value) => `'${value}'`).join(' | ')
  if (schema.prefixItems) return `readonly [${schema.prefixItems.map(typeOf).join(', ')}]`
  if (schema.type === 'array') return `readonly (${typeOf(schema.items ?? {})})[]`
  if (schema.type === 'object') return `Readonly<Record<string, ${typeOf(schema.additionalProperties ?? {})}>>`
  return BASIC[schema.type] ?? 'unknown'
}

function comment(text, indent = '') {
  const lines = text.split('\n').map((line) => `${indent} * ${line}`.trimEnd())
  return `${indent}/**\n${lines.join('\n')}\n${indent} */\n`
}

function definition(name, schema) {
  const required = new Set(schema.required)
  const fields = Object.entries(schema.properties).map(
    ([field, its]) => `  readonly ${field}${required.has(field) ? '' : '?'}: ${typeOf(its)}\n`,
  )
  const about = schema.description ? comment(schema.description) : ''
  return `${about}export interface ${name} {\n${fields.join('')}}\n`
}

/** The whole file, from the bytes of the schema. */
export function typesFrom(bytes) {
  const schema = JSON.parse(bytes.toString('utf8'))
  const hash = createHash('sha256').update(bytes).digest('hex')
  const events = Object.values(schema.discriminator.mapping).map((ref) => ref.split('/').at(-1))
  const parts = [
    `// Made by \`npm run types\` from src/rlm/records/events.schema.json; not written by hand.\n// schema-sha256: ${hash}\n`,
    ...Object.entries(schema.$defs).map(([name, its]) => definition(name, its)),
    `${comment(schema.description)}export type RunEvent =\n${events.map((name) => `  | ${name}\n`).join('')}`,
  ]
  return parts.join('\n')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const made = typesFrom(readFileSync(SCHEMA))
  if (process.argv.includes('--check')) {
    if (readFileSync(PAGE, 'utf8') !== made) {
      console.error('src/events.ts is stale: run npm run types')
      process.exitCode = 1
    }
  } else {
    writeFileSync(PAGE, made)
  }
}
