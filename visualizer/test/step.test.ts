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

  it('shows requests for data as one row for each method, with the requests below', () => {
    const step = new StepModel()
    const data = { source: 'corpus', source_id: 'c', seconds: 0.5 }
    for (const each of [
      event(0, 'cell_started', { cell: 1, code: 'x' }),
      event(1, 'tool_called', { call_id: 'a', name: 'ctx.read', arguments: { document: 1 } }),
      event(2, 'tool_called', { call_id: 'b', name: 'look', arguments: {} }),
      event(3, 'tool_called', { call_id: 'c', name: 'ctx.read', arguments: { document: 2 } }),
      event(4, 'data_read', { ...data, cell: 1, method: 'read', count: 2, returned: 2, bytes: 2_000, documents: [{ id: 1, name: '<b>', bytes: 100, read: 2, ranges: [[0, 10], [20, 30]] }] }),
      event(5, 'data_read', { ...data, cell: 1, method: 'sql', count: 1, failed: 1, error: 'no', requests: [{ text: 'select 1' }] }),
      event(6, 'cell_ended', { cell: 1, seconds: 1, calls: 2 }),
      event(7, 'data_read', { ...data, cell: 0, method: 'names', count: 1 }),
    ]) step.add(each)
    const [cell] = [...step.cells.values()]
    expect(cell?.calls.map((call) => call.id)).toEqual(['b'])
    expect(cell?.operators.map((each) => [each.name, each.task, each.error, each.calls.map((call) => call.id)])).toEqual([
      ['ctx.read', '<b>', null, ['a', 'c']],
      ['ctx.sql', 'select 1', 'no', []],
    ])
    expect(cell?.operators[0]?.summary).toBe('2 requests, 2 returned, 2.00 kB. <b> (20 B of 100 B read)')
    expect(step.looseOperators.map((each) => each.name)).toEqual(['ctx.names'])
    expect(step.calls).toBe(3)
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
