/**
 * Which event stands where in a file, and an outline of every run. Grows event by event in one
 * pass and keeps places, not texts, so a large file stays on the disk.
 */

import type { CallList, CallRow, Outline, StepRow, UsageFacts, UsagePoint } from '../contract'
import type { CallEnded, ModelAsked, ModelReplied, RunEnded, RunEvent, RunStarted, ToolCalled } from '../events'
import { cut } from '../text/hostile'
import { asCount, asNumber, asText, costOf, costSum, tokensOf } from './values'

const SHOWN_CHARS = 2_000
const CALL_CHARS = 200
const MAX_RUNS = 200_000
const MAX_POINTS = 2_000

/** Where an event is: its line in the file, and its number among the events of that line. */
export interface Place {
  readonly start: number
  readonly end: number
  readonly nth: number
}

/** Its sums are its own until it is asked for: then those of its child runs are added. */
interface Step extends Mutable<StepRow> {
  readonly events: number[]
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

interface Spent {
  readonly time: number
  readonly tokens: number
  readonly cost: number | null
}

class Run {
  opening: RunStarted | null = null
  ending: RunEnded | null = null
  readonly children: Run[] = []
  readonly places: Place[] = []
  readonly steps = new Map<number, Step>()
  readonly calls = new Map<string, Mutable<CallRow>>()
  readonly requests: Mutable<CallRow>[] = []
  readonly spent: Spent[] = []
  asked = 0
  latest = 0
  tokens = 0
  cost: number | null = null
  attempts = 1

  /** `above` is its parent, if that came first: so no log can make runs go round in circles. */
  constructor(
    readonly id: string,
    readonly first: RunEvent,
    readonly above: string | null,
  ) {}

  get depth(): number {
    return asCount(this.first.depth)
  }

  get started(): number {
    return asNumber(this.first.wall_time)
  }

  stepOf(number: number, time: number): Step {
    let step = this.steps.get(number)
    if (!step) {
      step = {
        step: number,
        start: time,
        end: time,
        cells: 0,
        calls: 0,
        failed_calls: 0,
        tools: 0,
        tokens: 0,
        cost_usd: null,
        own_tokens: 0,
        own_cost_usd: null,
        error: false,
        stored: false,
        events: [],
      }
      this.steps.set(number, step)
    }
    return step
  }
}

export class LogIndex {
  private readonly runs = new Map<string, Run>()
  skipped = 0
  readonly reasons = new Map<string, number>()

  skip(reason: string): void {
    this.skipped += 1
    if (this.reasons.has(reason) || this.reasons.size < 20) {
      this.reasons.set(reason, (this.reasons.get(reason) ?? 0) + 1)
    }
  }

  add(event: RunEvent, place: Place): void {
    let run = this.runs.get(event.run_id)
    if (!run || event.type === 'run_started') {
      if (!run && this.runs.size >= MAX_RUNS) return this.skip(`of more than ${MAX_RUNS} runs`)
      const parent = this.runs.get(event.parent_id ?? '')
      const above = run ? run.above : (parent?.id ?? null)
      const again = new Run(event.run_id, shortened(event), above)
      // A run that starts again forgets its earlier attempt, but not the children of that one.
      if (run) {
        again.attempts = run.attempts + 1
        again.children.push(...run.children)
        this.swap(run, again)
      } else parent?.children.push(again)
      this.runs.set(event.run_id, again)
      run = again
    }
    take(run, event, place)
  }

  private swap(old: Run, again: Run): void {
    const beside = this.runs.get(again.above ?? '')?.children
    const at = beside?.indexOf(old) ?? -1
    if (beside && at >= 0) beside[at] = again
  }

  has(runId: string): boolean {
    return this.runs.has(runId)
  }

  roots(): Outline[] {
    const roots = [...this.runs.values()].filter((run) => run.above === null)
    return roots.map((run) => this.outline(run)).sort((a, b) => b.started - a.started)
  }

  private under(run: Run, most = Number.POSITIVE_INFINITY): Run[] {
    const found: Run[] = []
    const seen = new Set<Run>()
    const waiting = [run]
    for (let next = waiting.pop(); next && found.length < most; next = waiting.pop()) {
      if (seen.has(next)) continue
      seen.add(next)
      found.push(next)
      for (let at = next.children.length - 1; at >= 0; at -= 1) waiting.push(next.children[at]!)
    }
    return found
  }

  private outline(run: Run): Outline {
    const all = this.under(run)
    const { opening, ending } = run
    const isOver = ending !== null
    return {
      run_id: run.id,
      parent_id: run.above,
      parent_call_id: opening?.parent_call_id ?? null,
      depth: run.depth,
      query: opening?.query ?? '',
      model: opening?.model ?? '',
      status: isOver ? 'ended' : 'killed',
      stop_reason: ending?.stop_reason ?? '',
      answer_source: ending?.answer_source ?? '',
      limit: ending?.limit ?? null,
      error: ending?.error ?? null,
      answer: ending?.answer ?? null,
      steps: isOver ? asCount(ending.steps) : Math.max(0, ...run.steps.keys()),
      calls: run.asked,
      tokens: isOver ? tokensOf(ending.usage) : all.reduce((sum, each) => sum + each.tokens, 0),
      cost_usd: isOver ? costOf(ending.usage) : costs(all),
      seconds: isOver ? asNumber(ending.seconds) : Math.max(0, run.latest - run.started),
      started: run.started,
      attempts: run.attempts,
      children: all.length - 1,
      deepest: all.reduce((deepest, each) => Math.max(deepest, each.depth), run.depth),
      all_calls: all.reduce((sum, each) => sum + each.asked, 0),
    }
  }

  one(runId: string): Outline | null {
    const run = this.runs.get(runId)
    return run ? this.outline(run) : null
  }

  tree(runId: string, most: number): Outline[] {
    let root = this.runs.get(runId)
    while (root?.above != null) root = this.runs.get(root.above)
    return root ? this.under(root, most).map((run) => this.outline(run)) : []
  }

  steps(runId: string): StepRow[] {
    const run = this.runs.get(runId)
    const steps = [...(run?.steps.values() ?? [])].sort((a, b) => a.step - b.step)
    const below = new Map<number, { tokens: number; cost: number | null }[]>()
    for (const [step, used] of run ? this.usedByChildren(run) : []) below.set(step, [...(below.get(step) ?? []), used])
    return steps.map(({ events: _, ...row }) => {
      const all = below.get(row.step) ?? []
      const known = [{ tokens: row.own_tokens, cost: row.own_cost_usd }, ...all].filter((each) => each.tokens > 0 || each.cost !== null)
      return {
        ...row,
        tokens: all.reduce((sum, each) => sum + each.tokens, row.own_tokens),
        cost_usd: known.length && known.every((each) => each.cost !== null) ? known.reduce((sum, each) => sum + (each.cost ?? 0), 0) : null,
      }
    })
  }

  /** What each child run used, with the step that called it; its call may tell it, else its own events do. */
  private *usedByChildren(run: Run): Generator<[number, { tokens: number; cost: number | null }]> {
    for (const call of run.calls.values()) {
      if (call.kind === 'rlm' && call.tokens > 0) yield [call.step, { tokens: call.tokens, cost: call.cost_usd }]
    }
    for (const child of run.children) {
      const call = run.calls.get(child.opening?.parent_call_id ?? '')
      if (!call || call.tokens > 0) continue
      const { tokens, cost_usd } = this.outline(child)
      yield [call.step, { tokens, cost: cost_usd }]
    }
  }

  /** The numbers of a step's events within its run. */
  eventsOf(runId: string, step: number): readonly number[] {
    return this.runs.get(runId)?.steps.get(step)?.events ?? []
  }

  place(runId: string, index: number): Place | undefined {
    return this.runs.get(runId)?.places[index]
  }

  indexOf(runId: string, type: string): Place | undefined {
    const run = this.runs.get(runId)
    const at = type === 'run_started' ? 0 : (run?.places.length ?? 0) - 1
    return run?.places[at]
  }

  calls(runId: string, most: number): CallList {
    const run = this.runs.get(runId)
    const all = run ? this.under(run) : []
    const total = all.reduce((sum, each) => sum + each.calls.size, 0)
    const calls: CallRow[] = []
    for (const each of all) {
      for (const call of each.calls.values()) {
        if (calls.length >= most) break
        calls.push(call)
      }
    }
    const requests = all.flatMap((each) => each.requests).sort((a, b) => a.start - b.start)
    return { calls: calls.sort((a, b) => a.start - b.start), total, requests: requests.slice(0, most), ...span(run && this.outline(run)) }
  }

  usage(runId: string): UsageFacts {
    const run = this.runs.get(runId)
    const whole = run && this.outline(run)
    return { points: this.points(runId), tokens: whole?.tokens ?? 0, cost_usd: whole?.cost_usd ?? null, ...span(whole) }
  }

  private points(runId: string): UsagePoint[] {
    const run = this.runs.get(runId)
    const spent = (run ? this.under(run) : []).flatMap((each) =>
      each.spent.map((part) => ({ ...part, depth: each.depth })),
    )
    spent.sort((a, b) => a.time - b.time)
    const totals = new Map<number, { tokens: number; cost: number | null }>()
    const points = spent.map((part) => {
      const before = totals.get(part.depth)
      const now = {
        tokens: (before?.tokens ?? 0) + part.tokens,
        cost: costSum(before?.cost ?? null, part.cost, before === undefined),
      }
      totals.set(part.depth, now)
      return { time: part.time, depth: part.depth, tokens: now.tokens, cost_usd: now.cost }
    })
    return thinned(points, MAX_POINTS)
  }

  /** The runs of the tree below this one, for searching. */
  idsBelow(runId: string): string[] {
    const run = this.runs.get(runId)
    return run ? this.under(run).map((each) => each.id) : []
  }

  stepNumbers(runId: string): number[] {
    return [...(this.runs.get(runId)?.steps.keys() ?? [])].sort((a, b) => a - b)
  }
}

function span(run: Outline | undefined): { start: number; end: number } {
  return run ? { start: run.started, end: run.started + run.seconds } : { start: 0, end: 0 }
}

function costs(runs: readonly Run[]): number | null {
  const known = runs.filter((run) => run.tokens > 0 || run.cost !== null).map((run) => run.cost)
  return known.length && known.every((cost) => cost !== null) ? known.reduce<number>((a, b) => a + (b ?? 0), 0) : null
}

/** Every so-many-th point, and the last of every depth. */
export function thinned(points: readonly UsagePoint[], most: number): UsagePoint[] {
  if (points.length <= most) return [...points]
  const last = new Map(points.map((point) => [point.depth, point]))
  const every = Math.ceil(points.length / Math.max(1, most - last.size))
  return points.filter((point, at) => at % every === 0 || last.get(point.depth) === point)
}

function shortened(event: RunEvent): RunEvent {
  if (event.type !== 'run_started') return event
  return { ...event, query: cut(event.query, SHOWN_CHARS), settings: {} }
}

function take(run: Run, event: RunEvent, place: Place): void {
  const time = asNumber(event.wall_time)
  const step = run.stepOf(asCount(event.step), time)
  step.events.push(run.places.length)
  run.places.push(place)
  step.end = Math.max(step.end, time)
  run.latest = Math.max(run.latest, time)
  switch (event.type) {
    case 'run_started':
      run.opening = run.first as RunStarted
      break
    case 'run_ended':
      run.ending = {
        ...event,
        answer: event.answer === null ? null : cut(event.answer, SHOWN_CHARS),
        error: event.error == null ? null : cut(event.error, SHOWN_CHARS),
      }
      break
    case 'model_asked':
      run.requests.push(requestOf(run, event, run.places.length - 1, time))
      break
    case 'model_replied':
      answered(run, event, time)
      step.stored ||= event.stored ?? false
      step.error ||= event.error != null
      spend(run, step, event, time)
      break
    case 'cell_started':
      step.cells += 1
      break
    case 'cell_ended':
      step.error ||= event.error_type != null
      break
    case 'call_started':
      run.calls.set(event.call_id, {
        ...callOf(run, event.call_id, asCount(event.step), event.kind, event.model, time),
        prompt: cut(event.prompt, CALL_CHARS),
      })
      step.calls += 1
      run.asked += 1
      break
    case 'call_ended':
      end(run, step, event, time)
      break
    case 'tool_called':
      tool(run, step, event, time)
      break
  }
}

function callOf(run: Run, id: string, step: number, kind: CallRow['kind'], model: string, start: number): CallRow {
  return {
    call_id: id,
    run_id: run.id,
    depth: run.depth,
    step,
    kind,
    model,
    start,
    end: null,
    tokens: 0,
    cost_usd: null,
    error: null,
    stored: false,
    retries: 0,
    child_run_id: null,
    prompt: '',
    reply: '',
  }
}

function requestOf(run: Run, event: ModelAsked, index: number, time: number): CallRow {
  const content = event.new_messages.at(-1)?.content
  const row = callOf(run, `#${index}`, asCount(event.step), 'request', event.model, time)
  return { ...row, prompt: cut(typeof content === 'string' ? content : '', CALL_CHARS) }
}

/** A run has one request of its own at a time. */
function answered(run: Run, event: ModelReplied, time: number): void {
  const row = run.requests.at(-1)
  if (!row || row.end !== null) return
  row.end = Math.max(row.start, time)
  row.tokens = tokensOf(event.usage)
  row.cost_usd = costOf(event.usage)
  row.error = event.error == null ? null : cut(event.error, CALL_CHARS)
  row.stored = event.stored ?? false
  row.retries = asCount(event.retries)
  row.reply = cut(event.text ?? '', CALL_CHARS)
}

function spend(run: Run, step: Step, event: ModelReplied | CallEnded, time: number): void {
  if (!event.usage) return
  const tokens = tokensOf(event.usage)
  const cost = costOf(event.usage)
  run.cost = costSum(run.cost, cost, run.spent.length === 0)
  run.tokens += tokens
  step.own_cost_usd = costSum(step.own_cost_usd, cost, step.own_tokens === 0 && step.own_cost_usd === null)
  step.own_tokens += tokens
  run.spent.push({ time, tokens, cost })
}

function end(run: Run, step: Step, event: CallEnded, time: number): void {
  const call = run.calls.get(event.call_id)
  if (call) {
    call.end = Math.max(call.start, time)
    call.tokens = tokensOf(event.usage)
    call.cost_usd = costOf(event.usage)
    call.error = event.error == null ? null : cut(event.error, CALL_CHARS)
    call.stored = event.stored ?? false
    call.retries = asCount(event.retries)
    call.child_run_id = event.child_run_id ?? null
    call.reply = cut(event.reply ?? '', CALL_CHARS)
  }
  if (event.error != null) step.failed_calls += 1
  // What a child run used is told by its own events.
  if (event.kind !== 'rlm') spend(run, step, event, time)
}

function tool(run: Run, step: Step, event: ToolCalled, time: number): void {
  step.tools += 1
  const start = time - asNumber(event.seconds)
  const call = callOf(run, event.call_id, asCount(event.step), 'tool', event.name, start) as Mutable<CallRow>
  call.end = time
  call.prompt = cut(asText(event.arguments), CALL_CHARS)
  call.reply = cut(event.result ?? '', CALL_CHARS)
  call.error = event.error == null ? null : cut(event.error, CALL_CHARS)
  call.stored = event.stored ?? false
  run.calls.set(`tool ${event.call_id}`, call)
}
