/** The context as a grid of equal pieces, each with how much of it was read and how often. Pure. */

import type { ContextDocument, Coverage, ReadSpan } from '../contract'

export interface Piece {
  readonly start: number
  readonly end: number
  /** Between 0 and 1. */
  readonly share: number
  /** The most readers any part of the piece has. */
  readonly readers: number
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high)
}

/** At most `most` pieces, whole characters each, together the whole context. */
export function grid(chars: number, spans: readonly ReadSpan[], most: number): Piece[] {
  const many = clamp(Math.floor(most), 1, Math.max(1, chars))
  if (chars <= 0) return []
  const edge = (at: number): number => Math.floor((at * chars) / many)
  const pieces: Piece[] = []
  let span = 0
  for (let at = 0; at < many; at += 1) {
    const start = edge(at)
    const end = edge(at + 1)
    while (span < spans.length && spans[span]!.end <= start) span += 1
    let read = 0
    let readers = 0
    for (let here = span; here < spans.length && spans[here]!.start < end; here += 1) {
      const each = spans[here]!
      read += Math.min(each.end, end) - Math.max(each.start, start)
      readers = Math.max(readers, each.readers.length)
    }
    pieces.push({ start, end, share: clamp(read / (end - start), 0, 1), readers })
  }
  return pieces
}

/** 0 never, 1 once, 2 twice, 3 up to four times, 4 more often. */
export function shade(readers: number): 0 | 1 | 2 | 3 | 4 {
  if (readers <= 0) return 0
  if (readers <= 2) return readers as 1 | 2
  return readers <= 4 ? 3 : 4
}

/** The first span that ends after a place: binary, for there may be many. */
export function spanFrom(spans: readonly ReadSpan[], place: number): number {
  let low = 0
  let high = spans.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (spans[middle]!.end <= place) low = middle + 1
    else high = middle
  }
  return low
}

/** All readers of a part, once each, in the order of the spans. */
export function readersOf(spans: readonly ReadSpan[], start: number, end: number): number[] {
  const found = new Set<number>()
  for (let at = spanFrom(spans, start); at < spans.length && spans[at]!.start < end; at += 1) {
    for (const reader of spans[at]!.readers) found.add(reader)
  }
  return [...found]
}

/** How much of a part was read, between 0 and 1. */
export function readShare(spans: readonly ReadSpan[], start: number, end: number): number {
  let read = 0
  for (let at = spanFrom(spans, start); at < spans.length && spans[at]!.start < end; at += 1) {
    read += Math.min(spans[at]!.end, end) - Math.max(spans[at]!.start, start)
  }
  return end > start ? clamp(read / (end - start), 0, 1) : 1
}

export function documentAt(documents: readonly ContextDocument[], place: number): ContextDocument | null {
  return documents.find((each) => each.start <= place && place < each.end) ?? null
}

/** The longest parts that were never read, longest first. */
export function gaps(coverage: Coverage, most: number): { start: number; end: number }[] {
  const found: { start: number; end: number }[] = []
  let at = 0
  for (const span of coverage.spans) {
    if (span.start > at) found.push({ start: at, end: span.start })
    at = Math.max(at, span.end)
  }
  if (at < coverage.chars) found.push({ start: at, end: coverage.chars })
  return found.sort((a, b) => b.end - b.start - (a.end - a.start)).slice(0, most)
}

export interface Segment {
  readonly start: number
  readonly end: number
  readonly readers: number
}

/** A part of the context cut where the readers change; together the segments are the part. */
export function segments(spans: readonly ReadSpan[], start: number, end: number, most = 400): Segment[] {
  const found: Segment[] = []
  let at = start
  for (let next = spanFrom(spans, start); next < spans.length && spans[next]!.start < end && found.length < most; next += 1) {
    const span = spans[next]!
    if (span.start > at) found.push({ start: at, end: span.start, readers: 0 })
    const from = Math.max(at, span.start)
    const until = Math.min(end, span.end)
    if (until > from) found.push({ start: from, end: until, readers: span.readers.length })
    at = Math.max(at, until)
  }
  if (at < end) found.push({ start: at, end, readers: 0 })
  return found
}
