/** Points of cumulative use as stacked areas, one a depth. Pure. */

import type { UsagePoint } from '../contract'

export interface Stack {
  readonly depths: readonly number[]
  readonly times: readonly number[]
  /** By depth, then by time: the top of that depth's area; the one below it is its bottom. */
  readonly tops: readonly (readonly number[])[]
  readonly most: number
  /** False if any cost was unknown: then the sum is at least this much. */
  readonly isComplete: boolean
}

const MAX_DEPTHS = 12

export function stacked(points: readonly UsagePoint[], of: 'tokens' | 'cost_usd'): Stack {
  const usable = points.filter((point) => Number.isFinite(point.time)).sort((a, b) => a.time - b.time)
  const depths = [...new Set(usable.map((point) => point.depth))].sort((a, b) => a - b).slice(0, MAX_DEPTHS)
  const times: number[] = []
  const tops: number[][] = depths.map(() => [])
  const now = new Map<number, number>()
  let isComplete = true
  for (const point of usable) {
    const value = point[of]
    if (value === null || !Number.isFinite(value)) isComplete = false
    now.set(point.depth, Math.max(now.get(point.depth) ?? 0, value ?? 0))
    if (times.at(-1) !== point.time) {
      times.push(point.time)
      for (const each of tops) each.push(0)
    }
    let sum = 0
    depths.forEach((depth, at) => {
      sum += now.get(depth) ?? 0
      tops[at]![times.length - 1] = sum
    })
  }
  const most = Math.max(0, tops.at(-1)?.at(-1) ?? 0)
  return { depths, times, tops, most, isComplete }
}

/** A closed outline with steps: what was used stays until more is. */
export function area(
  times: readonly number[],
  top: readonly number[],
  bottom: readonly number[] | null,
  x: (time: number) => number,
  y: (value: number) => number,
): string {
  if (!times.length) return ''
  const round = (value: number): string => value.toFixed(1)
  const parts = [`M${round(x(times[0]!))} ${round(y(bottom?.[0] ?? 0))}`]
  times.forEach((time, at) => {
    if (at > 0) parts.push(`H${round(x(time))}`)
    parts.push(`V${round(y(top[at]!))}`)
  })
  for (let at = times.length - 1; at >= 0; at -= 1) {
    parts.push(`V${round(y(bottom?.[at] ?? 0))}`)
    if (at > 0) {
      parts.push(`V${round(y(bottom?.[at - 1] ?? 0))}`)
      parts.push(`H${round(x(times[at - 1]!))}`)
    }
  }
  return `${parts.join('')}Z`
}

/** The place of the last time that is not after `time`, or -1. */
export function lastBefore(times: readonly number[], time: number): number {
  let low = 0
  let high = times.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (times[middle]! <= time) low = middle + 1
    else high = middle
  }
  return low - 1
}
