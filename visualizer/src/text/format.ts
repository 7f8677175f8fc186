/** Numbers as people read them. Every function takes any number, and null where a value may be unknown. */

const GROUPED = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 })
const UNKNOWN = '–'

export function count(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? UNKNOWN : GROUPED.format(value)
}

/** 1,234 as it is; more as 12.3 k, 4.56 M. */
export function short(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return UNKNOWN
  const size = Math.abs(value)
  if (size < 10_000) return GROUPED.format(value)
  for (const [unit, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (size >= unit * 0.9995) return `${digits(value / unit)} ${letter}`
  }
  return GROUPED.format(value)
}

function digits(value: number): string {
  const size = Math.abs(value)
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2)
}

export function seconds(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value) || value < 0) return UNKNOWN
  if (value < 0.0005) return '0 s'
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`
  if (value < 59.95) return `${value.toFixed(value < 9.995 ? 2 : 1)} s`
  const whole = Math.round(value)
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`
  if (whole < 86_400 * 3) return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`
  return `${count(Math.floor(whole / 86_400))} days`
}

function pad(value: number): string {
  return String(value).padStart(2, '0')
}

/** A cost below a heading that says what it is; an unknown one is called so, as on the command line, and is never $0. */
export function dollars(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return 'unknown'
  if (value === 0) return '$0'
  const size = Math.abs(value)
  if (size < 0.000001) return `${value < 0 ? '−' : ''}<$0.000001`
  if (size < 0.01) return `$${value.toPrecision(2).includes('e') ? value.toFixed(7) : Number(value.toPrecision(2)).toString()}`
  return size < 1000 ? `$${value.toFixed(size < 1 ? 3 : 2)}` : `$${GROUPED.format(value)}`
}

/** A cost among other figures. */
export function costWords(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? 'cost unknown' : dollars(value)
}

export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return UNKNOWN
  for (const [unit, name] of [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']] as const) {
    if (value >= unit * 0.9995) return `${digits(value / unit)} ${name}`
  }
  return `${GROUPED.format(value)} B`
}

export function percent(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return UNKNOWN
  if (value > 0 && value < 0.1) return '<0.1 %'
  if (value < 100 && value > 99.9) return '>99.9 %'
  return `${Number.isInteger(value) ? value : value.toFixed(1)} %`
}

/** Local date and time to the second; nothing for a time that is not known. */
export function moment(value: number | null | undefined): string {
  const date = value ? new Date(value * 1000) : null
  if (!date || Number.isNaN(date.getTime())) return UNKNOWN
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`
}

/** Round steps for an axis from 0 to `most`: 1, 2 or 5 times a power of ten. */
export function ticks(most: number, wanted = 4): number[] {
  if (!(most > 0) || !Number.isFinite(most)) return [0]
  const raw = most / Math.max(1, wanted)
  const power = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.7) ?? raw
  if (!(step > 0)) return [0]
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, at) => at * step)
}

/** A time on an axis whose marks are `step` apart: precise enough to distinguish them. */
export function onAxis(value: number, step: number): string {
  if (value === 0 || !Number.isFinite(value) || !(step > 0)) return '0 s'
  if (step >= 1) return value < 60 ? `${Math.round(value)} s` : seconds(Math.round(value)).replace(/ 00 s$/, '')
  return `${value.toFixed(Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)))} s`
}
