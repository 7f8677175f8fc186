/** Results of one or two folders, joined and filtered. Pure. */

import type { ResultFigures, ResultList, ResultSample } from '../contract'

/** One sample by one method, as each folder has it. */
export interface SamplePair {
  readonly key: string
  readonly both: readonly (ResultSample | null)[]
}

export interface FigurePair {
  readonly key: string
  readonly both: readonly (ResultFigures | null)[]
}

export interface ResultFilter {
  readonly task: string
  readonly size: string
  readonly method: string
  /** '', 'wrong', 'failed', 'differ'. */
  readonly only: string
}

function joined<T extends { readonly folder: number }>(all: readonly T[], folders: number, key: (each: T) => string): { key: string; both: (T | null)[] }[] {
  const found = new Map<string, (T | null)[]>()
  for (const each of all) {
    const name = key(each)
    let both = found.get(name)
    if (!both) found.set(name, (both = Array.from({ length: folders }, () => null)))
    if (each.folder < folders) both[each.folder] = each
  }
  return [...found].map(([name, both]) => ({ key: name, both }))
}

export function samplePairs(results: ResultList): SamplePair[] {
  return joined(results.samples, results.folders.length, (each) => each.key)
}

export function figurePairs(results: ResultList): FigurePair[] {
  return joined(results.figures, results.folders.length, (each) => `${each.task}|${each.size}|${each.method}`)
}

export function isWrong(sample: ResultSample | null): boolean {
  return sample !== null && sample.score !== null && sample.score < 1
}

/** Whether two folders disagree about a sample: one has no result, or the scores or answers are others. */
export function differ({ both }: SamplePair): boolean {
  const [one, other] = both
  if (both.length < 2) return false
  return !one || !other || one.score !== other.score || (one.score === null && one.answer !== other.answer)
}

export function filtered(pairs: readonly SamplePair[], filter: ResultFilter): SamplePair[] {
  const fits = (pair: SamplePair): boolean => {
    const sample = pair.both.find((each) => each !== null)
    if (!sample) return false
    if (filter.task && sample.task !== filter.task) return false
    if (filter.size && String(sample.size) !== filter.size) return false
    if (filter.method && sample.method !== filter.method) return false
    if (filter.only === 'wrong') return pair.both.some(isWrong)
    if (filter.only === 'failed') return pair.both.some((each) => each?.status === 'failed')
    return filter.only !== 'differ' || differ(pair)
  }
  return pairs.filter(fits)
}
