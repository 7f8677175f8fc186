/**
 * An iteration of the reference engine as events of ours. Pure; any JSON goes in. What such a log
 * does not say is left out: tokens of the steps themselves, when within a step something happened.
 */

import type { Message, RunEvent, Usage } from '../events'
import { asCount, asList, asNumber, asObject, asText, asTime, type Json } from './values'

const MAX_DEPTH = 50
const MAX_VARIABLES = 1_000
const DESCRIBED_CHARS = 200
const ASKED = [
  ['Answer the following: ', '\n\nYour context is '],
  ['original query: "', '"'],
] as const
const ERROR = /^(\w{0,100}(?:Error|Exception|Interrupt|Exit)): ?([^]*)$/m

/** A run before one of its iterations: all that is needed to convert that one by itself. */
export interface SoFar {
  readonly runId: string
  readonly parentId: string | null
  readonly parentCallId: string | null
  readonly depth: number
  readonly query: string
  readonly steps: number
  readonly started: number
  readonly seconds: number
  readonly calls: number
  readonly messages: number
  readonly variables: readonly string[]
  readonly usage: Usage
  readonly isOver: boolean
}

export function beginning(runId: string, above: Partial<SoFar> = {}): SoFar {
  return {
    runId,
    parentId: null,
    parentCallId: null,
    depth: 0,
    query: '',
    steps: 0,
    started: 0,
    seconds: 0,
    calls: 0,
    messages: 0,
    variables: [],
    usage: {},
    isOver: false,
    ...above,
  }
}

/** Whether that iteration is of a run that comes after this one. */
export function isOverBefore(now: SoFar, iteration: Json): boolean {
  const number = asCount(iteration['iteration'])
  return now.isOver || (number > 0 && number <= now.steps)
}

export function converted(iteration: Json, metadata: Json, before: SoFar): readonly [RunEvent[], SoFar] {
  const making = new Making(iteration, metadata, before)
  making.convert()
  return [making.events, making.after]
}

class Making {
  readonly events: RunEvent[] = []
  after: SoFar
  private readonly seconds: number
  private readonly end: number
  private readonly start: number
  private readonly isFirst: boolean
  private readonly model: string

  constructor(
    private readonly iteration: Json,
    private readonly metadata: Json,
    before: SoFar,
  ) {
    this.seconds = asNumber(iteration['iteration_time'])
    this.end = asTime(iteration['timestamp'])
    this.start = Math.max(0, this.end - this.seconds)
    this.isFirst = before.steps === 0
    this.model = asText(metadata['root_model'])
    this.after = {
      ...before,
      steps: Math.max(asCount(iteration['iteration']), before.steps + 1),
      started: this.isFirst ? this.start : before.started,
      seconds: before.seconds + this.seconds,
    }
  }

  convert(): void {
    const messages = messagesOf(this.iteration['prompt'])
    if (this.isFirst) this.begin(messages)
    this.tell({ type: 'step_started' }, this.start)
    this.ask(messages)
    asList(this.iteration['code_blocks']).forEach((block, at) => this.cell(at + 1, asObject(block)))
    let answer = this.iteration['final_answer']
    if (Array.isArray(answer) && answer.length) answer = answer.at(-1)
    if (answer != null) this.finish(asText(answer))
  }

  private tell(facts: Json, at = this.end, step = this.after.steps): void {
    const { runId: run_id, parentId: parent_id, depth } = this.after
    this.events.push({ run_id, parent_id, depth, step, wall_time: at, ...facts } as unknown as RunEvent)
  }

  private begin(messages: readonly Message[]): void {
    const others = asList(this.metadata['other_backends']).map(asText).join(', ')
    this.tell(
      {
        type: 'run_started',
        query: queryOf(messages) || this.after.query,
        model: this.model,
        sub_model: others,
        strategy: 'rlm',
        environment: asText(this.metadata['environment_type']),
        context_kind: 'text',
        context_bytes: 0,
        context_sha256: '',
        context_description: '',
        parent_call_id: this.after.parentCallId,
      },
      this.start,
      0,
    )
  }

  /** The reference logs the whole conversation every time; an event has what is new in it. */
  private ask(messages: readonly Message[]): void {
    const known = this.after.messages <= messages.length ? this.after.messages : 0
    this.tell(
      {
        type: 'model_asked',
        purpose: 'step',
        model: this.model,
        new_messages: messages.slice(known),
        message_count: messages.length,
        max_output_tokens: 0,
      },
      this.start,
    )
    this.after = { ...this.after, messages: messages.length }
    const inCells = asList(this.iteration['code_blocks'])
      .map((block) => asNumber(asObject(asObject(block)['result'])['execution_time']))
      .reduce((sum, each) => sum + each, 0)
    const seconds = Math.max(0, this.seconds - inCells)
    const text = asText(this.iteration['response'])
    this.tell({ type: 'model_replied', purpose: 'step', model: this.model, text, seconds })
  }

  private cell(number: number, block: Json): void {
    const result = asObject(block['result'])
    const calls = asList(result['rlm_calls'])
    this.tell({ type: 'cell_started', cell: number, code: asText(block['code']) })
    for (const call of calls) this.call(asObject(call))
    for (const stream of ['stdout', 'stderr']) {
      const text = asText(result[stream])
      if (text) this.tell({ type: 'cell_output', cell: number, stream, text, written_chars: text.length })
    }
    const error = ERROR.exec(asText(result['stderr']).trim().slice(-2_000))
    this.tell({
      type: 'cell_ended',
      cell: number,
      seconds: asNumber(result['execution_time']),
      calls: calls.length,
      error_type: error?.[1] ?? null,
      error_message: error?.[2] ?? null,
      new_variables: this.newVariables(asObject(result['locals'])),
      submitted: result['final_answer'] != null,
    })
  }

  private newVariables(variables: Json): Record<string, string> {
    const known = new Set(this.after.variables)
    const names = Object.keys(variables).filter((name) => !known.has(name))
    const kept = names.slice(0, Math.max(0, MAX_VARIABLES - known.size))
    this.after = { ...this.after, variables: [...known, ...kept] }
    return Object.fromEntries(kept.map((name) => [name, described(variables[name])]))
  }

  private call(call: Json): void {
    const number = this.after.calls + 1
    this.after = { ...this.after, calls: number }
    const call_id = `${this.after.runId}.reference.${number}`
    const trajectory = call['metadata']
    const isChild =
      typeof trajectory === 'object' && trajectory !== null && !Array.isArray(trajectory) && this.after.depth < MAX_DEPTH
    const about = { call_id, kind: isChild ? 'rlm' : 'llm', model: asText(call['root_model']) }
    const prompt = asText(call['prompt'])
    this.tell({ type: 'call_started', ...about, prompt })
    const child = isChild ? `${this.after.runId}-call${number}` : null
    if (child !== null) this.child(asObject(trajectory), child, call_id, prompt)
    const usage = usageOf(call['usage_summary'])
    this.after = { ...this.after, usage: sum(this.after.usage, usage) }
    this.tell({
      type: 'call_ended',
      ...about,
      reply: asText(call['response']),
      usage,
      seconds: asNumber(call['execution_time']),
      child_run_id: child,
      error: call['error'] == null ? null : asText(call['error']),
    })
  }

  private child(trajectory: Json, runId: string, callId: string, query: string): void {
    const metadata = asObject(trajectory['run_metadata'])
    let state = beginning(runId, {
      parentId: this.after.runId,
      parentCallId: callId,
      depth: this.after.depth + 1,
      query,
    })
    for (const each of asList(trajectory['iterations'])) {
      const [events, after] = converted(asObject(each), metadata, state)
      for (const event of events) this.events.push(event)
      state = after
    }
  }

  /** An answer without cells and without a time is what it asks for when no step is left. */
  private finish(answer: string): void {
    const wasAsked = !asList(this.iteration['code_blocks']).length && !this.seconds
    const elapsed = this.end - this.after.started
    this.tell({
      type: 'run_ended',
      stop_reason: wasAsked ? 'steps' : 'answer',
      answer_source: wasAsked ? 'asked' : 'submitted',
      answer,
      steps: this.after.steps,
      usage: this.after.usage,
      seconds: this.after.started && elapsed >= 0 ? elapsed : this.after.seconds,
    })
    this.after = { ...this.after, isOver: true }
  }
}

function messagesOf(prompt: unknown): readonly Message[] {
  if (prompt == null) return []
  return (Array.isArray(prompt) ? prompt : [prompt]).map((each): Message => {
    if (typeof each !== 'object' || each === null) return { role: 'user', content: asText(each) }
    const { role, content } = asObject(each)
    const known = role === 'system' || role === 'assistant' || role === 'tool' ? role : 'user'
    return { role: known, content: asText(content) }
  })
}

function queryOf(messages: readonly Message[]): string {
  for (const message of messages) {
    const text = message.role === 'user' ? asText(message.content) : ''
    for (const [before, after] of ASKED) {
      const start = text.indexOf(before)
      const end = start < 0 ? -1 : text.indexOf(after, start + before.length)
      if (end >= 0) return text.slice(start + before.length, end)
    }
  }
  return ''
}

function usageOf(value: unknown): Usage {
  return Object.values(asObject(asObject(value)['model_usage_summaries']))
    .map(asObject)
    .map(
      (part): Usage => ({
        input_tokens: asCount(part['total_input_tokens']),
        output_tokens: asCount(part['total_output_tokens']),
        cost_usd: part['total_cost'] == null ? null : asNumber(part['total_cost']),
        requests: asCount(part['total_calls']),
      }),
    )
    .reduce(sum, {})
}

function sum(one: Usage, other: Usage): Usage {
  const costs = [one, other].filter((part) => part.requests || part.cost_usd != null).map((part) => part.cost_usd)
  const isKnown = costs.length > 0 && costs.every((cost) => cost != null)
  return {
    input_tokens: (one.input_tokens ?? 0) + (other.input_tokens ?? 0),
    output_tokens: (one.output_tokens ?? 0) + (other.output_tokens ?? 0),
    cost_usd: isKnown ? costs.reduce<number>((total, cost) => total + (cost ?? 0), 0) : null,
    requests: (one.requests ?? 0) + (other.requests ?? 0),
  }
}

function described(value: unknown): string {
  if (Array.isArray(value)) return `list of ${value.length}`
  if (typeof value === 'object' && value !== null) return `dict of ${Object.keys(value).length}`
  return asText(value).slice(0, DESCRIBED_CHARS)
}
