/** Runs filtered and sorted. Pure. */

import type { Outline } from '../contract'

export type Column = 'status' | 'query' | 'model' | 'started' | 'steps' | 'calls' | 'depth' | 'tokens' | 'cost' | 'seconds'

export const COLUMNS: readonly { readonly name: Column; readonly words: string; readonly isNumber: boolean }[] = [
  { name: 'status', words: 'status', isNumber: false },
  { name: 'query', words: 'query', isNumber: false },
  { name: 'model', words: 'model', isNumber: false },
  { name: 'started', words: 'started', isNumber: true },
  { name: 'steps', words: 'steps', isNumber: true },
  { name: 'calls', words: 'calls', isNumber: true },
  { name: 'depth', words: 'depth', isNumber: true },
  { name: 'tokens', words: 'tokens', isNumber: true },
  { name: 'cost', words: 'cost', isNumber: true },
  { name: 'seconds', words: 'time', isNumber: true },
]

export interface Filter {
  readonly words: string
  readonly standing: string
  readonly model: string
}

export const NO_FILTER: Filter = { words: '', standing: '', model: '' }

type Key = (run: Outline) => string | number

function keyOf(column: Column, standing: (run: Outline) => string): Key {
  const keys: Readonly<Record<Column, Key>> = {
    status: standing,
    query: (run) => run.query.toLowerCase(),
    model: (run) => run.model.toLowerCase(),
    started: (run) => run.started,
    steps: (run) => run.steps,
    calls: (run) => run.all_calls,
    depth: (run) => run.deepest,
    tokens: (run) => run.tokens,
    cost: (run) => run.cost_usd ?? -1,
    seconds: (run) => run.seconds,
  }
  return keys[column]
}

export function arranged(
  runs: readonly Outline[],
  filter: Filter,
  column: Column,
  descending: boolean,
  standing: (run: Outline) => string,
): Outline[] {
  const words = filter.words.toLowerCase().split(/\s+/).filter(Boolean)
  const fits = (run: Outline): boolean => {
    if (filter.standing && standing(run) !== filter.standing) return false
    if (filter.model && run.model !== filter.model) return false
    const text = words.length ? `${run.query}\n${run.answer ?? ''}\n${run.run_id}\n${run.model}\n${run.note ?? ''}`.toLowerCase() : ''
    return words.every((word) => text.includes(word))
  }
  const key = keyOf(column, standing)
  const sign = descending ? -1 : 1
  return runs
    .filter(fits)
    .map((run) => ({ run, key: key(run) }))
    .sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : 0))
    .map(({ run }) => run)
}
