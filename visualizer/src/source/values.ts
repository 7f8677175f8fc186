/** Values of somebody else's JSON, each turned into what it should have been. Nothing throws. */

import { SHAPES, type RunEvent, type Usage } from '../events'

export type Json = Readonly<Record<string, unknown>>

const MAX_COUNT = 2 ** 40

export function asText(value: unknown): string {
  if (typeof value === 'string') return value
  if (value == null) return ''
  try {
    return JSON.stringify(value) ?? ''
  } catch {
    return `(${typeof value})`
  }
}

export function asObject(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {}
}

export function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

export function asNumber(value: unknown): number {
  return typeof value === 'number' && value >= 0 && value <= MAX_COUNT ? value : 0
}

export function asCount(value: unknown): number {
  const number = asNumber(value)
  return Number.isInteger(number) ? number : 0
}

/** Seconds since 1970; a timestamp without a zone is taken for local time. */
export function asTime(value: unknown): number {
  if (typeof value !== 'string') return asNumber(value)
  const time = value.length <= 200 ? Date.parse(value) : Number.NaN
  return Number.isFinite(time) ? Math.max(0, time / 1000) : 0
}

export function tokensOf(usage: Usage | null | undefined): number {
  return usage ? asNumber(usage.input_tokens) + asNumber(usage.output_tokens) : 0
}

export function costOf(usage: Usage | null | undefined): number | null {
  return usage && typeof usage.cost_usd === 'number' ? usage.cost_usd : null
}

/** A sum with an unknown cost in it is unknown, unless that part is nothing at all. */
export function costSum(one: number | null, other: number | null, isFirst: boolean): number | null {
  if (isFirst) return other
  return one === null || other === null ? null : one + other
}

function letter(value: unknown): string {
  if (value === null) return '0'
  if (Array.isArray(value)) return 'a'
  if (typeof value === 'number') return Number.isFinite(value) ? 'n' : '-'
  return { string: 's', boolean: 'b', object: 'o' }[typeof value as 'string'] ?? '-'
}

/** The value as an event if every field it knows has a value of its kind, else why not. */
export function asEvent(value: unknown): RunEvent | string {
  const object = asObject(value)
  const type = object['type']
  const shape = typeof type === 'string' && Object.hasOwn(SHAPES, type) ? SHAPES[type] : undefined
  if (!shape) return 'not an event'
  for (const [field, kinds] of Object.entries(shape)) {
    const its = Object.hasOwn(object, field) ? object[field] : undefined
    if (its === undefined) {
      if (kinds.startsWith('!')) return `no ${field}`
    } else if (!kinds.includes('*') && !kinds.includes(letter(its))) return `a wrong ${field}`
  }
  return object as unknown as RunEvent
}
