/** Where the bars of concurrent calls go. Pure: times in, lanes and pixels out. */

import type { CallRow } from '../contract'

export interface Bar {
  readonly call: CallRow
  readonly lane: number
  readonly start: number
  readonly end: number
}

export interface Gantt {
  readonly bars: readonly Bar[]
  readonly lanes: number
  readonly start: number
  readonly end: number
  /** The most calls and requests that were in progress at once. */
  readonly most: number
}

/** Lanes that are free, the lowest first, so that bars stay near the top. */
class Heap<T> {
  private readonly items: T[] = []

  constructor(private readonly before: (a: T, b: T) => boolean) {}

  get size(): number {
    return this.items.length
  }

  get first(): T | undefined {
    return this.items[0]
  }

  push(item: T): void {
    this.items.push(item)
    for (let at = this.items.length - 1; at > 0; ) {
      const above = (at - 1) >> 1
      if (!this.before(this.items[at]!, this.items[above]!)) break
      this.swap(at, above)
      at = above
    }
  }

  pop(): T | undefined {
    const top = this.items[0]
    const last = this.items.pop()
    if (this.items.length && last !== undefined) {
      this.items[0] = last
      this.sink()
    }
    return top
  }

  private sink(): void {
    for (let at = 0; ; ) {
      let least = at
      for (const below of [2 * at + 1, 2 * at + 2]) {
        if (below < this.items.length && this.before(this.items[below]!, this.items[least]!)) least = below
      }
      if (least === at) return
      this.swap(at, least)
      at = least
    }
  }

  private swap(a: number, b: number): void {
    ;[this.items[a], this.items[b]] = [this.items[b]!, this.items[a]!]
  }
}

/** Bars of one kind are below each other; those that call models share a band, for they are the work itself. */
const BANDS: Readonly<Record<CallRow['kind'], number>> = { step: 0, request: 1, cell: 2, operator: 3, run: 4, llm: 5, rlm: 5, tool: 5 }
const CALLS_BAND = 5

class Band {
  private readonly busy = new Heap<{ end: number; lane: number }>((a, b) => a.end < b.end)
  private readonly free = new Heap<number>((a, b) => a < b)
  most = 0
  count = 0

  place(start: number, end: number): number {
    while (this.busy.first && this.busy.first.end <= start) this.free.push(this.busy.pop()!.lane)
    const lane = this.free.pop() ?? this.count++
    this.busy.push({ end, lane })
    this.most = Math.max(this.most, this.busy.size)
    return lane
  }
}

/** `now` ends the calls that have not ended; `whole` is the time of the run around them. */
export function gantt(calls: readonly CallRow[], now: number, whole?: { readonly start: number; readonly end: number }): Gantt {
  const sorted = calls.filter((call) => Number.isFinite(call.start)).sort((a, b) => a.start - b.start || BANDS[a.kind] - BANDS[b.kind])
  const bands = Array.from({ length: CALLS_BAND + 1 }, () => new Band())
  const placed: { call: CallRow; band: number; lane: number; start: number; end: number }[] = []
  const sent = new Band()
  let end = 0
  for (const call of sorted) {
    const stop = Math.max(call.start, call.end ?? now)
    const band = BANDS[call.kind] ?? CALLS_BAND
    placed.push({ call, band, lane: bands[band]!.place(call.start, stop), start: call.start, end: stop })
    if (band === CALLS_BAND || call.kind === 'request') sent.place(call.start, stop)
    end = Math.max(end, stop)
  }
  const above: number[] = []
  let lanes = 0
  for (const band of bands) {
    above.push(lanes)
    lanes += band.count
  }
  const bars = placed.map(({ band, lane, ...bar }) => ({ ...bar, lane: above[band]! + lane }))
  const first = sorted[0]?.start ?? 0
  const start = whole && whole.start > 0 ? Math.min(first, whole.start) : first
  return { bars, lanes, start, end: Math.max(end, start, whole?.end ?? 0), most: sent.most }
}

export interface View {
  readonly from: number
  readonly to: number
}

/** The view zoomed by `factor` around a moment, kept inside the whole. */
export function zoomed(view: View, factor: number, around: number, whole: View): View {
  const all = Math.max(whole.to - whole.from, 1e-6)
  const span = Math.min(all, Math.max(all / 1e5, 1e-5, (view.to - view.from) * factor))
  const share = view.to > view.from ? (around - view.from) / (view.to - view.from) : 0.5
  return moved({ from: around - share * span, to: around + (1 - share) * span }, 0, whole)
}

export function moved(view: View, by: number, whole: View): View {
  const span = view.to - view.from
  const from = Math.min(Math.max(view.from + by, whole.from), Math.max(whole.from, whole.to - span))
  return { from, to: from + span }
}

/** The bar under a point, for lanes of one height; the nearest within a few pixels. */
export function barAt(bars: readonly Bar[], lane: number, time: number, slack: number): Bar | null {
  let best: Bar | null = null
  let distance = slack
  for (const bar of bars) {
    if (bar.lane !== lane) continue
    const away = time < bar.start ? bar.start - time : time > bar.end ? time - bar.end : 0
    if (away <= distance) {
      best = bar
      distance = away
      if (away === 0) break
    }
  }
  return best
}
