/**
 * Which event stands where in a file, and an outline of every run. Grows event by event in one
 * pass and keeps places, not texts, so a large file stays on the disk.
 */

import type { CallRow, Outline, StepRow, UsagePoint } from '../contract'
import type { CallEnded, ModelReplied, RunEnded, RunEvent, RunStarted, ToolCalled } from '../events'
import { cut } from '../text/hostile'
import { asCount, asNumber, asText, costOf, costSum, tokensOf } from './values'

const SHOWN_CHARS = 2_000
const CALL_CHARS = 200
const MOST_RUNS = 200_000
const MOST_POINTS = 2_000

/** Where an event is: its line in the file, and its number among the events of that line. */
export interface Place {
  readonly start: number
  readonly end: number
  readonly nth: number
}

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
      if (!run && this.runs.size >= MOST_RUNS) return this.skip(`of more than ${MOST_RUNS} runs`)
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
    const steps = [...(this.runs.get(runId)?.steps.values() ?? [])]
    return steps.sort((a, b) => a.step - b.step).map(({ events: _, ...row }) => row)
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

  calls(runId: string, most: number): { calls: CallRow[]; total: number } {
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
    return { calls: calls.sort((a, b) => a.start - b.start), total }
  }

  usage(runId: string): UsagePoint[] {
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
    return thinned(points, MOST_POINTS)
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
    case 'model_replied':
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

function spend(run: Run, step: Step, event: ModelReplied | CallEnded, time: number): void {
  if (!event.usage) return
  const tokens = tokensOf(event.usage)
  const cost = costOf(event.usage)
  run.cost = costSum(run.cost, cost, run.spent.length === 0)
  run.tokens += tokens
  step.cost_usd = costSum(step.cost_usd, cost, step.tokens === 0 && step.cost_usd === null)
  step.tokens += tokens
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
