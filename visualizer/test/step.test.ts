import { describe, expect, it } from 'vitest'
import type { Numbered } from '../src/contract'
import { StepModel } from '../src/state/step'

describe('a step', () => {
  const event = (index: number, type: string, facts: object = {}): Numbered => ({ type, run_id: 'r', index, ...facts }) as unknown as Numbered

  it('gathers cells, calls and replies, and takes nothing twice', () => {
    const step = new StepModel()
    const events = [
      event(0, 'model_asked', { purpose: 'step', model: 'm', new_messages: [], message_count: 1, max_output_tokens: 1 }),
      event(1, 'model_replied', { purpose: 'step', model: 'm', text: 'hello' }),
      event(2, 'cell_started', { cell: 1, code: 'x' }),
      event(3, 'call_started', { call_id: 'a', kind: 'llm', model: 'm', prompt: 'p'.repeat(500) }),
      event(4, 'call_started', { call_id: 'b', kind: 'rlm', model: 'm', prompt: 'q' }),
      event(5, 'call_retried', { call_id: 'a', model: 'm', attempt: 1, wait_seconds: 2, error: 'busy' }),
      event(6, 'call_ended', { call_id: 'b', kind: 'rlm', model: 'm', reply: 'r', child_run_id: 'r-1', stored: true }),
      event(7, 'tool_called', { call_id: 't', name: 'look', arguments: { n: 1 }, result: '2' }),
      event(8, 'cell_output', { cell: 1, stream: 'stdout', text: 'out', written_chars: 3 }),
      event(9, 'cell_ended', { cell: 1, seconds: 1, calls: 2 }),
      event(10, 'call_started', { call_id: 'c', kind: 'llm', model: 'm', prompt: 'loose' }),
    ]
    for (const each of [...events, ...events]) step.add(each)
    const [cell] = [...step.cells.values()]
    expect(cell?.calls.map((call) => [call.id, call.kind, call.replyIndex])).toEqual([['a', 'llm', -1], ['b', 'rlm', 6], ['t', 'tool', 7]])
    expect(cell?.calls[0]?.prompt).toHaveLength(200)
    expect(cell?.calls[0]?.waits).toEqual([{ attempt: 1, seconds: 2, error: 'busy' }])
    expect(step.callWith('b')).toMatchObject({ stored: true, childRunId: 'r-1' })
    expect(step.loose.map((call) => call.id)).toEqual(['c'])
    expect(step.mainReply?.text).toBe('hello')
    expect([cell?.outputs.length, step.calls]).toEqual([1, 4])
  })

  it('shows an operator as one row, with its calls below', () => {
    const step = new StepModel()
    for (const each of [
      event(0, 'cell_started', { cell: 1, code: 'x' }),
      event(1, 'operator_started', { operator_id: 'o', name: 'classify', task: 'spam, ham', items: 60, distinct: 60 }),
      event(2, 'call_started', { call_id: 'a', kind: 'llm', model: 'm', prompt: 'p', operator_id: 'o' }),
      event(3, 'call_started', { call_id: 'b', kind: 'llm', model: 'm', prompt: 'q' }),
      event(4, 'call_ended', { call_id: 'a', kind: 'llm', model: 'm', reply: 'r' }),
      event(5, 'operator_ended', { operator_id: 'o', name: 'classify', summary: '60 items', prompts: 1, missing: 2, seconds: 3 }),
      event(6, 'cell_ended', { cell: 1, seconds: 1, calls: 1 }),
      event(7, 'operator_started', { operator_id: 'l', name: 'rank', task: 'best', items: 1, distinct: 1 }),
      event(8, 'call_started', { call_id: 'c', kind: 'llm', model: 'm', prompt: 'p', operator_id: 'unknown' }),
    ])
      step.add(each)
    const [cell] = [...step.cells.values()]
    expect(cell?.operators).toMatchObject([{ name: 'classify', items: 60, summary: '60 items', missing: 2, seconds: 3 }])
    expect(cell?.operators[0]?.calls.map((call) => [call.id, call.replyIndex])).toEqual([['a', 4]])
    expect(cell?.calls.map((call) => call.id)).toEqual(['b'])
    expect(step.looseOperators.map((each) => each.name)).toEqual(['rank'])
    expect(step.loose.map((call) => call.id)).toEqual(['c'])
  })
})
