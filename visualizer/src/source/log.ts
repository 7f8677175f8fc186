/** A log file that was picked or dropped: read once in slices for its index, then a piece at a time. */

import type { CallList, Coverage, EventPage, Hit, Hits, Numbered, RunList, RunPage, UsageFacts, WholeText } from '../contract'
import type { RunEnded, RunEvent, RunStarted } from '../events'
import { cut } from '../text/hostile'
import { LogIndex, type Place } from './index'
import { beginning, converted, isOverBefore, type SoFar } from './reference'
import { asEvent, asObject, type Json } from './values'

const SLICE_BYTES = 4 << 20
const MAX_LINE_BYTES = 64 << 20
const MAX_TREE = 5_000
const MAX_CALLS = 20_000
const CUT_CHARS = 20_000
const MAX_TEXT_CHARS = 5_000_000
const MAX_HITS = 200
const EXCERPT_CHARS = 120
/** Fields that are no text anybody wrote, as the server has it. */
const NO_TEXTS = new Set(['type', 'run_id', 'parent_id', 'call_id', 'parent_call_id', 'digest', 'settings', 'index', 'cut'])

const NO_CONTEXT =
  'A log holds no context text, only its hash. Run "rlm view" on the folder of the run: it finds the context that was kept beside the journal.'

const LINE_FEED = 0x0a

export class LogFile {
  private readonly index = new LogIndex()
  private readonly decoder = new TextDecoder('utf-8')
  private metadata: Json = {}
  private now: SoFar
  private readonly before = new Map<number, SoFar>()
  private runs = 1

  constructor(
    private readonly file: Blob,
    private readonly name: string,
  ) {
    this.now = beginning(name)
  }

  /** Reads the whole file once. `told` hears how far it is, between 0 and 1. */
  async read(told: (share: number) => void = () => {}): Promise<void> {
    let rest = new Uint8Array(0)
    let at = 0
    for (let start = 0; start < this.file.size; start += SLICE_BYTES) {
      const slice = new Uint8Array(await this.file.slice(start, start + SLICE_BYTES).arrayBuffer())
      const bytes = rest.length ? joined(rest, slice) : slice
      const used = this.lines(bytes, at, start + SLICE_BYTES >= this.file.size)
      rest = bytes.slice(used)
      at += used
      if (rest.length > MAX_LINE_BYTES) {
        this.index.skip('a line that is too long')
        const passed = await this.lineEnd(start + SLICE_BYTES)
        at = passed
        start = passed - SLICE_BYTES
        rest = new Uint8Array(0)
      }
      told(Math.min(1, (start + SLICE_BYTES) / this.file.size))
    }
  }

  private async lineEnd(from: number): Promise<number> {
    for (let start = from; start < this.file.size; start += SLICE_BYTES) {
      const slice = new Uint8Array(await this.file.slice(start, start + SLICE_BYTES).arrayBuffer())
      const end = slice.indexOf(LINE_FEED)
      if (end >= 0) return start + end + 1
    }
    return this.file.size
  }

  private lines(bytes: Uint8Array, at: number, isLast: boolean): number {
    let from = 0
    for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED, from)) {
      this.line(bytes.subarray(from, end), at + from, at + end)
      from = end + 1
    }
    if (isLast && from < bytes.length) {
      this.line(bytes.subarray(from), at + from, at + bytes.length)
      from = bytes.length
    }
    return from
  }

  private line(bytes: Uint8Array, start: number, end: number): void {
    if (bytes.length === 0 || bytes.length > MAX_LINE_BYTES) return
    const value = parsed(this.decoder.decode(bytes))
    if (value === undefined) return this.index.skip('not JSON')
    const object = asObject(value)
    if (object['type'] === 'metadata') this.metadata = object
    else if (object['type'] === 'iteration') this.iteration(object, start, end)
    else {
      const event = asEvent(value)
      if (typeof event === 'string') this.index.skip(event)
      else this.index.add(event, { start, end, nth: 0 })
    }
  }

  private iteration(iteration: Json, start: number, end: number): void {
    if (isOverBefore(this.now, iteration)) {
      this.runs += 1
      this.now = beginning(`${this.name}-run${this.runs}`)
    }
    this.before.set(start, this.now)
    const [events, after] = converted(iteration, this.metadata, this.now)
    this.now = after
    events.forEach((event, nth) => this.index.add(event, { start, end, nth }))
  }

  private async at(place: Place): Promise<RunEvent | null> {
    const value = parsed(this.decoder.decode(await this.file.slice(place.start, place.end).arrayBuffer()))
    return this.eventIn(value, place)
  }

  private eventIn(value: unknown, place: Place): RunEvent | null {
    const before = this.before.get(place.start)
    if (before) return converted(asObject(value), this.metadata, before)[0][place.nth] ?? null
    const event = asEvent(value)
    return typeof event === 'string' ? null : event
  }

  list(): RunList {
    const reasons = [...this.index.reasons].map(([reason, times]) => `${reason}: ${times}`)
    return { runs: this.index.roots(), skipped: { count: this.index.skipped, reasons } }
  }

  async run(runId: string): Promise<RunPage> {
    const run = this.index.one(runId)
    if (!run) throw new Error(`This file has no run ${runId}.`)
    const first = await this.edge(runId, 'run_started')
    const last = await this.edge(runId, 'run_ended')
    const started = first?.type === 'run_started' ? (cutEvent(first) as RunStarted) : null
    const ended = last?.type === 'run_ended' ? (cutEvent(last) as RunEnded) : null
    return {
      run,
      tree: this.index.tree(runId, MAX_TREE),
      steps: this.index.steps(runId),
      started,
      ended,
      context: {
        kind: started?.context_kind ?? '',
        bytes: started?.context_bytes ?? 0,
        sha256: started?.context_sha256 ?? '',
        description: started?.context_description ?? '',
        available: false,
      },
    }
  }

  private async edge(runId: string, type: string): Promise<RunEvent | null> {
    const place = this.index.indexOf(runId, type)
    return place ? this.at(place) : null
  }

  async step(runId: string, step: number, offset: number, limit: number): Promise<EventPage> {
    const all = this.index.eventsOf(runId, step)
    const events: Numbered[] = []
    for await (const event of this.several(runId, all.slice(offset, offset + limit))) events.push(event)
    return { events, total: all.length }
  }

  /** Neighbouring lines are read together. */
  private async *several(runId: string, numbers: readonly number[]): AsyncGenerator<Numbered> {
    for (let at = 0; at < numbers.length; ) {
      const first = this.index.place(runId, numbers[at]!)!
      let end = at + 1
      let stop = first.end
      for (; end < numbers.length; end += 1) {
        const next = this.index.place(runId, numbers[end]!)!
        if (next.start < first.start || next.start > stop + 64_000 || next.end - first.start > SLICE_BYTES) break
        stop = Math.max(stop, next.end)
      }
      const bytes = new Uint8Array(await this.file.slice(first.start, stop).arrayBuffer())
      for (; at < end; at += 1) {
        const place = this.index.place(runId, numbers[at]!)!
        const text = this.decoder.decode(bytes.subarray(place.start - first.start, place.end - first.start))
        const event = this.eventIn(parsed(text), place)
        if (event) yield { ...cutEvent(event), index: numbers[at]! }
      }
    }
  }

  async text(runId: string, index: number, field: string): Promise<WholeText> {
    const place = this.index.place(runId, index)
    const event = place ? await this.at(place) : null
    const value = event ? field.split('.').reduce<unknown>(inside, event) : ''
    const text = typeof value === 'string' ? value : value == null ? '' : JSON.stringify(value, null, 2)
    return text.length > MAX_TEXT_CHARS ? { text: cut(text, MAX_TEXT_CHARS), chars: text.length } : { text }
  }

  calls(runId: string): CallList {
    return this.index.calls(runId, MAX_CALLS)
  }

  usage(runId: string): UsageFacts {
    return this.index.usage(runId)
  }

  coverage(): Coverage {
    return {
      available: false,
      why_not: NO_CONTEXT,
      chars: 0,
      documents: [],
      spans: [],
      readers: [],
      unread_percent: 0,
      exact: false,
    }
  }

  async search(runId: string, words: string): Promise<Hits> {
    const hits: Hits['hits'][number][] = []
    const wanted = words.toLowerCase()
    if (!wanted) return { hits, more: false }
    for (const id of this.index.idsBelow(runId)) {
      for (const step of this.index.stepNumbers(id)) {
        for await (const event of this.several(id, this.index.eventsOf(id, step))) {
          const hit = foundIn(event, wanted)
          if (hit === null) continue
          if (hits.length >= MAX_HITS) return { hits, more: true }
          hits.push({ run_id: id, step, index: event.index, type: event.type, ...hit })
        }
      }
    }
    return { hits, more: false }
  }
}

function joined(one: Uint8Array, other: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(one.length + other.length)
  both.set(one)
  both.set(other, one.length)
  return both
}

/** Python writes NaN and Infinity, which are not JSON; such a line is read once more without them. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    if (!/\b(?:NaN|Infinity)\b/.test(text)) return undefined
  }
  try {
    return JSON.parse(text.replace(/([:[,]\s*)(?:NaN|-?Infinity)\b/g, '$1null')) as unknown
  } catch {
    return undefined
  }
}

function inside(value: unknown, key: string): unknown {
  if (Array.isArray(value)) return value[Number(key)] as unknown
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? (value as Json)[key] : undefined
}

/** Long texts are cut, as the server does it. */
function cutEvent<E extends RunEvent>(event: E): E & { cut?: Record<string, number> } {
  const cuts: Record<string, number> = {}
  const shorter: Record<string, unknown> = { ...event }
  for (const [field, value] of Object.entries(event)) {
    if (typeof value === 'string' && value.length > CUT_CHARS) {
      cuts[field] = value.length
      shorter[field] = cut(value, CUT_CHARS)
    }
  }
  if (event.type === 'model_asked') {
    shorter['new_messages'] = event.new_messages.map((message, at) => {
      const { content } = asObject(message)
      if (typeof content !== 'string' || content.length <= CUT_CHARS) return message
      cuts[`new_messages.${at}.content`] = content.length
      return { ...message, content: cut(content, CUT_CHARS) }
    })
  }
  return Object.keys(cuts).length ? ({ ...shorter, cut: cuts } as unknown as E) : event
}

/** Which field of an event holds the words, and what stands around them there. */
function foundIn(event: Numbered, wanted: string): Pick<Hit, 'field' | 'cell' | 'call_id' | 'excerpt'> | null {
  for (const [field, value] of Object.entries(event)) {
    const excerpt = NO_TEXTS.has(field) ? null : found(value, wanted)
    if (excerpt !== null) {
      const cell = 'cell' in event ? event.cell : null
      const call = 'call_id' in event ? (event.call_id ?? null) : null
      return { field, cell, call_id: call, excerpt }
    }
  }
  return null
}

function found(value: unknown, wanted: string): string | null {
  if (typeof value === 'string') {
    const at = value.toLowerCase().indexOf(wanted)
    if (at < 0) return null
    return value.slice(Math.max(0, at - EXCERPT_CHARS / 2), at + wanted.length + EXCERPT_CHARS)
  }
  if (typeof value !== 'object' || value === null) return null
  for (const [key, each] of Object.entries(value)) {
    const hit = key === 'settings' ? null : found(each, wanted)
    if (hit !== null) return hit
  }
  return null
}
