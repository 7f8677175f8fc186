import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { CallRow, Coverage, ReadSpan, UsagePoint } from '../src/contract'
import { gaps, grid, readersOf, readShare, segments, shade, spanFrom } from '../src/layout/coverage'
import { barAt, gantt, moved, zoomed } from '../src/layout/gantt'
import { area, lastBefore, stacked } from '../src/layout/usage'

function call(start: number, end: number | null, id = `${start}-${end}`): CallRow {
  return {
    call_id: id, run_id: 'r', depth: 0, step: 1, kind: 'llm', model: 'm', start, end, tokens: 0, cost_usd: null,
    error: null, stored: false, retries: 0, child_run_id: null, prompt: '', reply: '',
  }
}

describe('gantt', () => {
  it('lasts as long as the run around the calls', () => {
    const laid = gantt([call(12, 13)], 13, { start: 10, end: 17 })
    expect([laid.start, laid.end]).toEqual([10, 17])
  })

  it('puts calls that overlap into lanes of their own, and uses lanes again', () => {
    const laid = gantt([call(0, 2), call(1, 3), call(2, 4), call(3.5, null)], 5)
    expect(laid.bars.map((bar) => bar.lane)).toEqual([0, 1, 0, 1])
    expect([laid.lanes, laid.most, laid.start, laid.end]).toEqual([2, 2, 0, 5])
  })

  it('never lets two bars of a lane overlap, and needs no more lanes than calls at once', () => {
    const some = fc.array(fc.tuple(fc.integer({ min: 0, max: 50 }), fc.integer({ min: 0, max: 20 })), { maxLength: 80 })
    fc.assert(
      fc.property(some, (all) => {
        const laid = gantt(all.map(([start, length], at) => call(start, start + length, String(at))), 100)
        expect(laid.bars).toHaveLength(all.length)
        expect(laid.lanes).toBe(laid.most)
        const ends = new Map<number, number>()
        for (const bar of laid.bars) {
          expect(bar.start).toBeGreaterThanOrEqual(ends.get(bar.lane) ?? Number.NEGATIVE_INFINITY)
          ends.set(bar.lane, bar.end)
        }
      }),
    )
  })

  it('takes twenty thousand calls at once', () => {
    const laid = gantt(Array.from({ length: 20_000 }, (_, at) => call(at / 1e6, 10)), 10)
    expect(laid.lanes).toBe(20_000)
  })

  it('finds the bar under a point, or the nearest', () => {
    const { bars } = gantt([call(0, 1), call(2, 3)], 3)
    expect(barAt(bars, 0, 2.5, 0)?.start).toBe(2)
    expect(barAt(bars, 0, 1.1, 0.2)?.start).toBe(0)
    expect(barAt(bars, 0, 1.5, 0.2)).toBeNull()
    expect(barAt(bars, 1, 2.5, 1)).toBeNull()
  })

  it('zooms around a moment and stays inside the whole', () => {
    const whole = { from: 100, to: 200 }
    expect(zoomed(whole, 0.5, 150, whole)).toEqual({ from: 125, to: 175 })
    expect(moved({ from: 125, to: 175 }, 1_000, whole)).toEqual({ from: 150, to: 200 })
    const numbers = fc.tuple(fc.double({ min: 0.01, max: 100, noNaN: true }), fc.double({ min: 100, max: 200, noNaN: true }))
    fc.assert(
      fc.property(fc.array(numbers, { maxLength: 20 }), (all) => {
        const view = all.reduce((now, [factor, around]) => zoomed(now, factor, around, whole), whole)
        expect(view.from).toBeGreaterThanOrEqual(100)
        expect(view.to).toBeLessThanOrEqual(200.001)
        expect(view.to).toBeGreaterThan(view.from)
      }),
    )
  })
})

/** Spans as the server tells them: sorted, disjoint. */
const spans = fc.array(fc.tuple(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 6 })), { maxLength: 20 }).map((all) => {
  let at = 0
  return all.map(([gap, length, readers]): ReadSpan => {
    const start = at + gap
    at = start + length
    return { start, end: at, readers: Array.from({ length: readers }, (_, number) => number) }
  })
})

describe('coverage', () => {
  const read: ReadSpan[] = [{ start: 10, end: 20, readers: [0] }, { start: 20, end: 30, readers: [0, 2] }]

  it('fills squares by how much of them was read', () => {
    expect(grid(40, read, 4)).toEqual([
      { start: 0, end: 10, share: 0, readers: 0 },
      { start: 10, end: 20, share: 1, readers: 1 },
      { start: 20, end: 30, share: 1, readers: 2 },
      { start: 30, end: 40, share: 0, readers: 0 },
    ])
    expect(grid(0, [], 4)).toEqual([])
    expect(grid(3, [], 100)).toHaveLength(3)
  })

  it('never shows more or less than was read', () => {
    fc.assert(
      fc.property(spans, fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 30 }), (all, most, beyond) => {
        const chars = (all.at(-1)?.end ?? 0) + beyond
        const pieces = grid(chars, all, most)
        const shown = pieces.reduce((sum, piece) => sum + piece.share * (piece.end - piece.start), 0)
        const whole = all.reduce((sum, span) => sum + span.end - span.start, 0)
        expect(shown).toBeCloseTo(whole, 6)
        expect(pieces[0]!.start).toBe(0)
        expect(pieces.at(-1)!.end).toBe(chars)
        const cover = { chars, spans: all } as unknown as Coverage
        const unread = gaps(cover, 1_000).reduce((sum, gap) => sum + gap.end - gap.start, 0)
        expect(unread + whole).toBe(chars)
      }),
    )
  })

  it('cuts a text where its readers change', () => {
    expect(segments(read, 5, 25)).toEqual([
      { start: 5, end: 10, readers: 0 },
      { start: 10, end: 20, readers: 1 },
      { start: 20, end: 25, readers: 2 },
    ])
    fc.assert(
      fc.property(spans, fc.nat(100), fc.nat(100), (all, start, length) => {
        const found = segments(all, start, start + length)
        let at = start
        for (const each of found) {
          expect(each.start).toBe(at)
          expect(each.end).toBeGreaterThan(each.start)
          at = each.end
        }
        expect(at).toBe(start + length)
      }),
    )
  })

  it('tells who read a part', () => {
    expect(readersOf(read, 0, 12)).toEqual([0])
    expect(readersOf(read, 15, 40)).toEqual([0, 2])
    expect(readersOf(read, 30, 40)).toEqual([])
    expect(readShare(read, 5, 15)).toBe(0.5)
    expect(spanFrom(read, 20)).toBe(1)
    expect([0, 1, 2, 3, 4, 5, 99].map(shade)).toEqual([0, 1, 2, 3, 3, 4, 4])
  })
})

describe('usage', () => {
  const points: UsagePoint[] = [
    { time: 1, depth: 0, tokens: 10, cost_usd: 0.1 },
    { time: 2, depth: 1, tokens: 5, cost_usd: null },
    { time: 3, depth: 0, tokens: 30, cost_usd: 0.2 },
  ]

  it('stacks depths', () => {
    const stack = stacked(points, 'tokens')
    expect(stack).toEqual({ depths: [0, 1], times: [1, 2, 3], tops: [[10, 10, 30], [10, 15, 35]], most: 35, isComplete: true })
    expect(stacked(points, 'cost_usd').isComplete).toBe(false)
    expect(stacked([], 'tokens').most).toBe(0)
  })

  it('draws closed outlines in steps', () => {
    expect(area([0, 1], [5, 8], null, (x) => x, (y) => y)).toBe('M0.0 0.0V5.0H1.0V8.0V0.0V0.0H0.0V0.0Z')
    expect(area([], [], null, (x) => x, (y) => y)).toBe('')
  })

  it('finds the last time before a moment', () => {
    expect([0, 1, 2.5, 9].map((time) => lastBefore([1, 2, 3], time))).toEqual([-1, 0, 1, 2])
  })
})
