/** What the list shows, as it stands in the address: words, status, model, tag, score, group, and the order. Pure. */

import type { Outline } from '../contract'
import { COLUMNS, type Column } from './columns'

export interface Filter {
  readonly words: string
  readonly standing: string
  readonly model: string
  readonly tag: string
  /** One of SCORES. */
  readonly score: string
  readonly group: string
}

export interface Order {
  readonly column: Column
  readonly descending: boolean
}

export const NO_FILTER: Filter = { words: '', standing: '', model: '', tag: '', score: '', group: '' }
export const NEWEST_FIRST: Order = { column: 'started', descending: true }
export const STANDINGS = ['running', 'interrupted', 'answer', 'passages', 'steps', 'limit', 'cancelled', 'error'] as const
export const SCORES: readonly (readonly [string, string, string])[] = [
  ['0.8', 'score 0.8 or more', 'score>=0.8'],
  ['0.5', 'score 0.5 or more', 'score>=0.5'],
  ['low', 'score below 0.5', 'score<0.5'],
  ['none', 'not scored', 'not (score<0.5 or score>=0.5)'],
]
const NAMES: Readonly<Record<keyof Filter, string>> = { words: 'q', standing: 'status', model: 'model', tag: 'tag', score: 'score', group: 'group' }
const MAX_CHARS = 500

/** Anything may stand in an address; what means nothing is left out. */
export function filterIn(options: string): Filter {
  const given = new URLSearchParams(options)
  const text = (name: string): string => (given.get(name) ?? '').slice(0, MAX_CHARS)
  const known = (value: string, all: readonly string[]): string => (all.includes(value) ? value : '')
  return {
    words: text('q'),
    standing: known(text('status'), STANDINGS),
    model: text('model'),
    tag: text('tag'),
    score: known(text('score'), SCORES.map(([value]) => value)),
    group: text('group'),
  }
}

export function orderIn(options: string): Order {
  const given = new URLSearchParams(options).get('sort') ?? ''
  const found = COLUMNS.find(({ name }) => name === given.replace(/^-/, ''))
  return found ? { column: found.name, descending: given.startsWith('-') } : NEWEST_FIRST
}

/** Only what differs from the usual stands in the address. */
export function optionsOf(filter: Filter, order: Order = NEWEST_FIRST): string {
  const options = new URLSearchParams()
  for (const [field, name] of Object.entries(NAMES) as [keyof Filter, string][]) {
    if (filter[field]) options.set(name, filter[field])
  }
  if (order.column !== NEWEST_FIRST.column || order.descending !== NEWEST_FIRST.descending) {
    options.set('sort', `${order.descending ? '-' : ''}${order.column}`)
  }
  return options.toString()
}

function quoted(text: string): string {
  return `"${text.replace(/\\/g, '\\\\').replace(/"/g, '\\"')}"`
}

/** The same filter as a condition of the server, without its words. */
export function conditionOf(filter: Filter): string {
  const parts: string[] = []
  if (filter.standing) parts.push(`status=${filter.standing}`)
  if (filter.model) parts.push(`model=${quoted(filter.model)}`)
  if (filter.tag) parts.push(`tag=${quoted(filter.tag)}`)
  const score = SCORES.find(([value]) => value === filter.score)
  if (score) parts.push(score[2])
  return parts.join(' and ')
}

export function groupKey(run: Outline): string {
  return run.group ? `${run.group.kind}:${run.group.name}` : ''
}

function fitsScore(score: number | null | undefined, wanted: string): boolean {
  if (!wanted) return true
  if (wanted === 'none') return score == null
  if (score == null) return false
  return wanted === 'low' ? score < 0.5 : score >= Number(wanted)
}

/** Whether a run fits; `standing` is its status in one word, and `steps` is a limit, too. */
export function fits(run: Outline, filter: Filter, standing: string): boolean {
  if (filter.standing && standing !== filter.standing && !(filter.standing === 'limit' && standing === 'steps')) return false
  if (filter.model && run.model !== filter.model) return false
  if (filter.tag && !run.tags?.includes(filter.tag)) return false
  if (filter.group && groupKey(run) !== filter.group) return false
  if (!fitsScore(run.score, filter.score)) return false
  const words = filter.words.toLowerCase().split(/\s+/).filter(Boolean)
  if (!words.length) return true
  const facts = [run.query, run.answer ?? '', run.run_id, run.model, run.note ?? '', run.group?.name ?? '', ...(run.tags ?? [])]
  const text = facts.join('\n').toLowerCase()
  return words.every((word) => text.includes(word))
}
