/** Runs filtered and sorted, and those that belong together under one row. Pure. */

import type { Outline, RunGroup } from '../contract'
import type { Column } from './columns'
import { type Filter, fits, groupKey } from './filter'

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
    score: (run) => run.score ?? -Infinity,
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
  const key = keyOf(column, standing)
  const sign = descending ? -1 : 1
  return runs
    .filter((run) => fits(run, filter, standing(run)))
    .map((run) => ({ run, key: key(run) }))
    .sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : 0))
    .map(({ run }) => run)
}

/** Runs of one chat, batch, or part of a benchmark, in the order of the list. */
export interface Group extends RunGroup {
  readonly key: string
  readonly runs: readonly Outline[]
}

export type Item = { readonly run: Outline; readonly inGroup: boolean } | { readonly group: Group; readonly isOpen: boolean }

/** One row for each group of two or more, where its first run stands; `open` ones show their runs below. */
export function grouped(runs: readonly Outline[], open: ReadonlySet<string>): Item[] {
  const members = new Map<string, Outline[]>()
  for (const run of runs) {
    const key = groupKey(run)
    if (!key) continue
    const known = members.get(key)
    if (known) known.push(run)
    else members.set(key, [run])
  }
  const items: Item[] = []
  const seen = new Set<string>()
  for (const run of runs) {
    const key = groupKey(run)
    const together = members.get(key)
    if (!key || !together || together.length < 2) {
      items.push({ run, inGroup: false })
    } else if (!seen.has(key)) {
      seen.add(key)
      const isOpen = open.has(key)
      items.push({ group: { ...run.group!, key, runs: together }, isOpen })
      if (isOpen) items.push(...together.map((each) => ({ run: each, inGroup: true })))
    }
  }
  return items
}

export interface Totals {
  readonly tokens: number
  readonly cost_usd: number | null
  readonly seconds: number
  readonly score: number | null
}

/** Sums, and the mean score of those that have one; a cost is unknown if one of them is. */
export function totalsOf(runs: readonly Outline[]): Totals {
  const scores = runs.map((run) => run.score).filter((score) => score != null)
  const costs = runs.map((run) => run.cost_usd)
  return {
    tokens: runs.reduce((sum, run) => sum + run.tokens, 0),
    cost_usd: costs.some((cost) => cost === null) ? null : costs.reduce<number>((sum, cost) => sum + (cost ?? 0), 0),
    seconds: runs.reduce((sum, run) => sum + run.seconds, 0),
    score: scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null,
  }
}
