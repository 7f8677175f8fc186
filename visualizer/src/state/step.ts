/**
 * One step as it is shown, gathered from its events in any number of pages. Of calls only the
 * beginnings of texts are kept: a step may have tens of thousands.
 */

import type { Numbered } from '../contract'
import type {
  CallEnded,
  CallStarted,
  CellEnded,
  CellOutput,
  CellStarted,
  Compacted,
  DataRead,
  Diverged,
  ModelAsked,
  ModelReplied,
  Noted,
  OperatorEnded,
  OperatorStarted,
  Planned,
  RunEnded,
  RunStarted,
  SessionLost,
  SessionOpened,
  ToolCalled,
  Usage,
} from '../events'
import { bytes, count, plural } from '../text/format'
import { cut } from '../text/hostile'

const KEPT_CHARS = 200
const ARGUMENT_CHARS = 4_000
const STREAMED_CHARS = 100_000
const MAX_NOTES = 200

export function tokensOf(usage: Usage | null | undefined): number {
  return (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0)
}

export function costOf(usage: Usage | null | undefined): number | null {
  return usage?.cost_usd ?? null
}

export interface StepCall {
  readonly id: string
  readonly kind: 'llm' | 'rlm' | 'tool'
  readonly cell: number | null
  model: string
  prompt: string
  reply: string
  promptIndex: number
  replyIndex: number
  start: number
  seconds: number | null
  tokens: number
  cost: number | null
  retries: number
  waits: { attempt: number; seconds: number; error: string }[]
  stored: boolean
  error: string | null
  childRunId: string | null
}

/** An operator such as `classify`, or a method that asks for data: one row, with the calls it made below. */
export interface StepOperator {
  readonly id: string
  readonly name: string
  task: string
  items: number
  summary: string
  seconds: number | null
  missing: number
  error: string | null
  readonly calls: StepCall[]
}

export interface StepCell {
  readonly number: number
  started: Numbered<CellStarted> | null
  readonly outputs: Numbered<CellOutput>[]
  ended: Numbered<CellEnded> | null
  readonly calls: StepCall[]
  readonly operators: StepOperator[]
}

export interface Exchange {
  asked: Numbered<ModelAsked> | null
  replied: Numbered<ModelReplied> | null
}

export type Notice = Numbered<SessionLost> | Numbered<SessionOpened> | Numbered<Compacted> | Numbered<Diverged> | Numbered<Planned>

const SHOWN_DOCUMENTS = 20

/** What requests returned, and the documents they touched. */
export function dataWords(event: DataRead): string {
  const documents = event.documents ?? []
  const parts = [plural(event.count, 'request'), event.failed ? `${count(event.failed)} failed` : '', `${count(event.returned ?? 0)} returned`, bytes(event.bytes ?? 0)]
  const touched = documents.slice(0, SHOWN_DOCUMENTS).map((each) => {
    const read = (each.ranges ?? []).reduce((sum, [start, end]) => sum + end - start, 0)
    const how = [each.found ? `found ${count(each.found)}×` : '', each.matched ? `${plural(each.matched, 'line')} matched` : '', each.read ? `${bytes(read)} of ${bytes(each.bytes ?? 0)} read` : '']
    return `${cut(each.name, KEPT_CHARS)} (${how.filter(Boolean).join(', ')})`
  })
  const more = documents.length - touched.length
  if (more > 0) touched.push(`and ${plural(more, 'more document')}`)
  return [parts.filter(Boolean).join(', '), touched.join('; ')].filter(Boolean).join('. ')
}

export class StepModel {
  readonly exchanges: Exchange[] = []
  readonly cells = new Map<number, StepCell>()
  /** Calls that no cell of this step made: of map/reduce. */
  readonly loose: StepCall[] = []
  /** Operators that no cell of this step ran: of `rlm.operators`. */
  readonly looseOperators: StepOperator[] = []
  readonly notices: Notice[] = []
  /** What cells showed the user, joined; of very much the beginning. */
  streamed = ''
  /** What cells noted for later turns. */
  readonly noted: Numbered<Noted>[] = []
  readonly retries: { attempt: number; seconds: number; error: string }[] = []
  started: Numbered<RunStarted> | null = null
  ended: Numbered<RunEnded> | null = null
  /** The largest number of an event that was taken, so that none is taken twice. */
  last = -1
  calls = 0
  private readonly byId = new Map<string, StepCall>()
  private readonly operators = new Map<string, StepOperator>()
  private current: number | null = null

  /** True if it was new. Events come in order; one that was seen changes nothing. */
  add(event: Numbered): boolean {
    if (event.index <= this.last) return false
    this.last = event.index
    switch (event.type) {
      case 'run_started':
        this.started = event
        break
      case 'run_ended':
        this.ended = event
        break
      case 'model_asked':
        this.exchanges.push({ asked: event, replied: null })
        break
      case 'model_replied':
        this.reply(event)
        break
      case 'cell_started':
        this.current = event.cell
        this.cell(event.cell).started = event
        break
      case 'cell_output':
        this.cell(event.cell).outputs.push(event)
        break
      case 'cell_ended':
        this.cell(event.cell).ended = event
        this.current = null
        break
      case 'operator_started':
        this.operatorStarted(event)
        break
      case 'operator_ended':
        this.operatorEnded(event)
        break
      case 'call_started':
        this.callStarted(event)
        break
      case 'call_ended':
        this.callEnded(event)
        break
      case 'call_retried':
        this.retried(event.call_id ?? null, event.attempt, event.wait_seconds, event.error)
        break
      case 'tool_called':
        this.tool(event)
        break
      case 'data_read':
        this.dataRead(event)
        break
      case 'output_streamed':
        if (this.streamed.length < STREAMED_CHARS) this.streamed += cut(event.text, STREAMED_CHARS)
        break
      case 'noted':
        if (this.noted.length < MAX_NOTES) this.noted.push(event)
        break
      case 'session_lost':
      case 'session_opened':
      case 'compacted':
      case 'diverged':
      case 'planned':
        this.notices.push(event)
        break
    }
    return true
  }

  callWith(id: string): StepCall | undefined {
    return this.byId.get(id)
  }

  /** The reply that contains the step's cells. */
  get mainReply(): Numbered<ModelReplied> | null {
    const replies = this.exchanges.map((each) => each.replied).filter((each) => each !== null)
    return replies.find((each) => each.purpose === 'step') ?? replies[0] ?? null
  }

  private reply(event: Numbered<ModelReplied>): void {
    const open = this.exchanges.findLast((each) => each.replied === null && each.asked?.purpose === event.purpose)
    if (open) open.replied = event
    else this.exchanges.push({ asked: null, replied: event })
  }

  private cell(number: number): StepCell {
    let cell = this.cells.get(number)
    if (!cell) {
      cell = { number, started: null, outputs: [], ended: null, calls: [], operators: [] }
      this.cells.set(number, cell)
    }
    return cell
  }

  private operatorStarted(event: Numbered<OperatorStarted>): void {
    const operator = this.operator(event.operator_id, event.name)
    operator.task = cut(event.task, KEPT_CHARS)
    operator.items = event.items
  }

  private operatorEnded(event: Numbered<OperatorEnded>): void {
    const operator = this.operator(event.operator_id, event.name)
    operator.summary = event.summary
    operator.seconds = event.seconds ?? 0
    operator.missing = event.missing ?? 0
    operator.error = event.error ?? null
  }

  private operator(id: string, name: string): StepOperator {
    let operator = this.operators.get(id)
    if (!operator) {
      operator = { id, name, task: '', items: 0, summary: '', seconds: null, missing: 0, error: null, calls: [] }
      this.operators.set(id, operator)
      if (this.current === null) this.looseOperators.push(operator)
      else this.cell(this.current).operators.push(operator)
    }
    return operator
  }

  /** One row for the requests of a method; those that came before it move below. */
  private dataRead(event: Numbered<DataRead>): void {
    const name = `ctx.${event.method}`
    const calls = event.cell === 0 ? this.loose : this.cell(event.cell).calls
    const isOwn = (call: StepCall): boolean => call.kind === 'tool' && call.model === name
    const own = calls.filter(isOwn)
    const others = calls.filter((call) => !isOwn(call))
    calls.length = 0
    for (const each of others) calls.push(each)
    const operators = event.cell === 0 ? this.looseOperators : this.cell(event.cell).operators
    operators.push({
      id: `data ${event.index}`,
      name,
      task: cut((event.requests ?? []).map((each) => each.text).join(' | ') || (event.documents ?? []).map((each) => each.name).join(', '), KEPT_CHARS),
      items: event.count,
      summary: dataWords(event),
      seconds: event.seconds ?? 0,
      missing: 0,
      error: event.error ?? null,
      calls: own,
    })
  }

  private newCall(
    id: string,
    kind: StepCall['kind'],
    model: string,
    index: number,
    start: number,
    operatorId: string | null = null,
  ): StepCall {
    const call: StepCall = {
      id,
      kind,
      cell: this.current,
      model,
      prompt: '',
      reply: '',
      promptIndex: index,
      replyIndex: -1,
      start,
      seconds: null,
      tokens: 0,
      cost: null,
      retries: 0,
      waits: [],
      stored: false,
      error: null,
      childRunId: null,
    }
    this.byId.set(id, call)
    this.calls += 1
    const operator = operatorId === null ? undefined : this.operators.get(operatorId)
    if (operator) operator.calls.push(call)
    else if (this.current === null) this.loose.push(call)
    else this.cell(this.current).calls.push(call)
    return call
  }

  private callStarted(event: Numbered<CallStarted>): void {
    const operatorId = event.operator_id ?? null
    const call = this.newCall(event.call_id, event.kind, event.model, event.index, event.wall_time ?? 0, operatorId)
    call.prompt = cut(event.prompt, KEPT_CHARS)
  }

  private callEnded(event: Numbered<CallEnded>): void {
    const call =
      this.byId.get(event.call_id) ??
      this.newCall(event.call_id, event.kind, event.model, -1, (event.wall_time ?? 0) - (event.seconds ?? 0))
    call.replyIndex = event.index
    call.model = event.model || call.model
    call.reply = cut(event.reply ?? '', KEPT_CHARS)
    call.seconds = event.seconds ?? 0
    call.tokens = tokensOf(event.usage)
    call.cost = costOf(event.usage)
    call.retries = event.retries ?? 0
    call.stored = event.stored ?? false
    call.error = event.error ?? null
    call.childRunId = event.child_run_id ?? null
  }

  private retried(id: string | null, attempt: number, seconds: number, error: string): void {
    const waits = id === null ? this.retries : this.byId.get(id)?.waits
    waits?.push({ attempt, seconds, error })
  }

  private tool(event: Numbered<ToolCalled>): void {
    const start = (event.wall_time ?? 0) - (event.seconds ?? 0)
    const call = this.newCall(event.call_id, 'tool', event.name, event.index, start)
    call.prompt = cut(JSON.stringify(event.arguments, null, 2), ARGUMENT_CHARS)
    call.reply = cut(event.result ?? '', KEPT_CHARS)
    call.replyIndex = event.index
    call.seconds = event.seconds ?? 0
    call.stored = event.stored ?? false
    call.error = event.error ?? null
  }
}
