import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Numbered } from '../src/contract'
import { placeOf } from '../src/pages/search'
import { thinned } from '../src/source/index'
import { LogFile, parsed } from '../src/source/log'
import { beginning, converted } from '../src/source/reference'
import { asEvent } from '../src/source/values'
import { StepModel } from '../src/state/step'

const TESTS = new URL('../../tests/', import.meta.url)

async function opened(text: string | Uint8Array<ArrayBuffer>, name = 'log'): Promise<LogFile> {
  const log = new LogFile(new Blob([text]), name)
  await log.read()
  return log
}

function line(type: string, facts: object): string {
  return `${JSON.stringify({ type, run_id: 'r', ...facts })}\n`
}

const STARTED = { query: 'Why?', model: 'm', sub_model: 'm', strategy: 'rlm', environment: 'local', context_kind: 'text', context_bytes: 3, context_sha256: 'x', context_description: 'three' }
const ENDED = { stop_reason: 'answer', answer_source: 'submitted', answer: '42', steps: 1, usage: { input_tokens: 3, output_tokens: 4, cost_usd: 0.5, requests: 1 }, seconds: 2 }

describe('a log of ours', () => {
  it('opens as recorded', async () => {
    const log = await opened(readFileSync(new URL('fixtures/run.jsonl', import.meta.url)) as Uint8Array<ArrayBuffer>)
    const { runs, skipped } = log.list()
    expect(skipped).toEqual({ count: 0, reasons: [] })
    expect(runs).toHaveLength(1)
    const [root] = runs
    const id = root?.run_id ?? ''
    expect(root).toMatchObject({ query: 'How many words?', answer: '4', steps: 3, children: 2, deepest: 1, calls: 6, all_calls: 8, tokens: 5172 })
    const page = await log.run(id)
    expect(page.started?.context_bytes).toBe(18)
    expect(page.ended?.answer).toBe('4')
    expect(page.tree.map((run) => run.depth)).toEqual([0, 1, 1])
    expect(page.steps.map(({ step, cells, calls, tools, error }) => [step, cells, calls, tools, error])).toEqual([
      [0, 0, 0, 0, false],
      [1, 1, 6, 1, false],
      [2, 1, 0, 0, true],
      [3, 1, 0, 0, false],
    ])
    const all = await Promise.all(page.steps.map((step) => log.step(id, step.step, 0, 500)))
    const numbers = all.flatMap((step) => step.events.map((event) => event.index)).sort((a, b) => a - b)
    expect(numbers).toEqual(numbers.map((_, at) => at))
    const { calls, total } = log.calls(id)
    expect([total, calls.filter((call) => call.kind === 'rlm').every((call) => log.list().runs.length && call.child_run_id)]).toEqual([9, true])
    const { points, start, end, tokens } = log.usage(id)
    expect([tokens, end - start]).toEqual([root?.tokens, expect.closeTo(root?.seconds ?? 0)])
    expect(page.steps.reduce((sum, step) => sum + step.tokens, 0)).toBe(root?.tokens)
    expect(page.steps.reduce((sum, step) => sum + step.own_tokens, 0)).toBe(points.filter((point) => point.depth === 0).at(-1)?.tokens)
    expect(log.calls(id).requests.map((request) => [request.depth, request.step])).toEqual([[0, 1], [1, 1], [1, 1], [0, 2], [0, 3]])
    expect(points.filter((point) => point.depth === 0).at(-1)!.tokens + points.filter((point) => point.depth === 1).at(-1)!.tokens).toBe(root?.tokens)
    const [hit] = (await log.search(id, 'LENGTH OF three')).hits
    expect(hit).toMatchObject({ type: 'call_started', field: 'prompt', cell: null })
    expect(placeOf(hit!)).toMatch(/^step 1, prompt of call [0-9a-f]+\.\d+$/)
  })

  it('adds to a step what its child runs used, and tells its own apart', async () => {
    const used = (tokens: number, cost: number | null) => ({ input_tokens: tokens, output_tokens: 0, cost_usd: cost, requests: 1 })
    const call = { step: 1, call_id: 'r.x.1', kind: 'rlm', model: 'm' }
    const child = { run_id: 'c', parent_id: 'r', depth: 1 }
    const events = [
      line('run_started', { ...STARTED, wall_time: 10 }),
      line('model_asked', { step: 1, purpose: 'step', model: 'm', new_messages: [{ role: 'user', content: 'Q' }], message_count: 1, max_output_tokens: 9, wall_time: 11 }),
      line('model_replied', { step: 1, purpose: 'step', model: 'm', usage: used(100, 1), wall_time: 12 }),
      line('call_started', { ...call, prompt: 'p', wall_time: 12 }),
      line('run_started', { ...STARTED, ...child, parent_call_id: 'r.x.1', wall_time: 13 }),
      line('model_replied', { ...child, step: 1, purpose: 'step', model: 'm', usage: used(1_000, 2), wall_time: 14 }),
      line('run_ended', { ...ENDED, ...child, usage: used(1_200, 3) }),
      line('call_ended', { ...call, error: 'it failed', wall_time: 15 }),
    ]
    const log = await opened(events.join(''))
    expect((await log.run('r')).steps[1]).toMatchObject({ tokens: 1_300, own_tokens: 100, cost_usd: 4, own_cost_usd: 1 })
    expect(log.usage('r')).toMatchObject({ tokens: 1_100, start: 10, end: 15 })
    const over = await opened([...events, line('run_ended', { ...ENDED, usage: used(1_500, 5), seconds: 7 })].join(''))
    expect(over.usage('r')).toMatchObject({ tokens: 1_500, cost_usd: 5, start: 10, end: 17 })
    expect(over.calls('r')).toMatchObject({ start: 10, end: 17, requests: [{ kind: 'request', start: 11, end: 12, tokens: 100, prompt: 'Q' }] })
  })

  it('gives texts that were cut as a whole', async () => {
    const code = 'x'.repeat(30_000)
    const log = await opened(line('run_started', STARTED) + line('cell_started', { step: 1, cell: 1, code }))
    const [event] = (await log.step('r', 1, 0, 10)).events
    expect(event).toMatchObject({ cut: { code: 30_000 }, index: 1 })
    expect((event as { code: string }).code).toHaveLength(20_000)
    expect(await log.text('r', 1, 'code')).toEqual({ text: code })
    expect(await log.text('r', 1, '__proto__')).toEqual({ text: '' })
    expect(await log.text('r', 99, 'code')).toEqual({ text: '' })
  })

  it('counts only the last attempt of a run', async () => {
    const cell = line('cell_started', { step: 1, cell: 1, code: 'a' })
    const log = await opened(line('run_started', STARTED) + cell + cell + line('run_started', STARTED) + cell + line('run_ended', { ...ENDED, step: 1 }))
    const page = await log.run('r')
    expect(page.run).toMatchObject({ attempts: 2, status: 'ended', tokens: 7, cost_usd: 0.5 })
    expect(page.steps.map((step) => [step.step, step.cells])).toEqual([[0, 0], [1, 1]])
  })

  it('has children below their parents, and is not led in circles', async () => {
    const child = (id: string, parent: string): string => `${JSON.stringify({ type: 'run_started', ...STARTED, run_id: id, parent_id: parent, depth: 1 })}\n`
    const log = await opened(line('run_started', STARTED) + child('a', 'r') + child('b', 'a') + child('x', 'y') + child('y', 'x') + child('z', 'z'))
    expect(log.list().runs.map((run) => [run.run_id, run.children])).toEqual(expect.arrayContaining([['r', 2], ['x', 1], ['z', 0]]))
    expect((await log.run('b')).tree.map((run) => run.run_id)).toEqual(['r', 'a', 'b'])
    expect((await log.run('y')).tree.map((run) => run.run_id)).toEqual(['x', 'y'])
  })

  it('passes over lines it cannot read, and says so', async () => {
    const log = await opened(`${line('run_started', STARTED)}nonsense\n{"type":"other"}\n${line('cell_started', { cell: 'one', code: 1 })}\n[1]\n{"type":"run_started"`)
    const { runs, skipped } = log.list()
    expect(runs).toHaveLength(1)
    expect(skipped.count).toBe(5)
    expect(skipped.reasons).toEqual(['not JSON: 2', 'not an event: 2', 'a wrong cell: 1'])
  })

  it('reads lines across the edges of its slices', async () => {
    const wide = line('cell_output', { step: 1, cell: 1, stream: 'stdout', text: 'é'.repeat(1_500_000), written_chars: 1_500_000 })
    const log = await opened(line('run_started', STARTED) + wide + wide + wide + line('run_ended', ENDED))
    expect(log.list().runs[0]?.status).toBe('ended')
    expect((await log.step('r', 1, 0, 10)).events).toHaveLength(3)
    expect((await log.text('r', 2, 'text')).text).toHaveLength(1_500_000)
  })

  it('takes any bytes', async () => {
    const value = fc.oneof(fc.jsonValue(), fc.constantFrom('run_started', 'call_ended', 'iteration', 'metadata', 'r', -1, 1e400, null))
    const key = fc.constantFrom('type', 'run_id', 'parent_id', 'step', 'depth', 'call_id', 'usage', 'kind', 'prompt', 'cell', 'code', 'wall_time', 'iteration', 'code_blocks', 'response', 'final_answer', 'timestamp')
    const object = fc.dictionary(key, value, { noNullPrototype: true })
    const text = fc.array(fc.oneof(object.map((each) => JSON.stringify(each)), fc.string({ unit: 'binary' })), { maxLength: 12 })
    await fc.assert(
      fc.asyncProperty(text, async (lines) => {
        const log = await opened(lines.join('\n'))
        for (const run of log.list().runs) {
          const page = await log.run(run.run_id)
          for (const step of page.steps) await log.step(run.run_id, step.step, 0, 50)
          log.calls(run.run_id)
          log.usage(run.run_id)
        }
      }),
      { numRuns: 200 },
    )
  })
})

describe('a log of the reference engine', () => {
  it('opens as the server opens it', async () => {
    const log = await opened(readFileSync(new URL('trajectories/data/reference.jsonl', TESTS)) as Uint8Array<ArrayBuffer>, 'reference')
    const outlines = log.list().runs.map(({ run_id, query, stop_reason, answer, steps, calls, tokens, children }) => ({ run_id, query, stop_reason, answer, steps, calls, tokens, children }))
    expect(outlines).toEqual([
      { run_id: 'reference-run2', query: 'Which number?', stop_reason: 'steps', answer: 'It may be 3.', steps: 5, calls: 0, tokens: 0, children: 0 },
      { run_id: 'reference', query: 'What is the answer?', stop_reason: 'answer', answer: '42', steps: 4, calls: 4, tokens: 550, children: 1 },
    ])
    const child = await log.run('reference-call4')
    expect(child.run).toMatchObject({ parent_id: 'reference', parent_call_id: 'reference.reference.4', query: 'Add one to 41', steps: 2, answer: '42' })
    const page = await log.step('reference', 1, 0, 100)
    expect(page.events[0]).toMatchObject({ type: 'step_started', index: 1 })
  })

  it('converts any JSON', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom('iteration', 'prompt', 'response', 'code_blocks', 'final_answer', 'timestamp', 'iteration_time'), fc.jsonValue()), (iteration) => {
        const [events] = converted(iteration, {}, beginning('x'))
        for (const event of events) expect(typeof asEvent(event)).toBe('object')
      }),
    )
  })
})

describe('values', () => {
  it('that are not JSON but Python are read', () => {
    expect(parsed('{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN"}')).toEqual({ a: null, b: [null, null], c: 'NaN' })
    expect(parsed('{')).toBeUndefined()
  })

  it('of unknown kinds are no events', () => {
    expect(asEvent({ type: 'toString' })).toBe('not an event')
    expect(asEvent(null)).toBe('not an event')
    expect(asEvent({ type: 'step_started' })).toBe('no run_id')
  })

  it('are thinned to so many, and the last of each depth stays', () => {
    const points = Array.from({ length: 5_000 }, (_, at) => ({ time: at, depth: at === 17 ? 1 : 0, tokens: at, cost_usd: null }))
    const some = thinned(points, 100)
    expect(some.length).toBeLessThanOrEqual(110)
    expect(some).toContain(points[17])
    expect(some.at(-1)).toBe(points.at(-1))
  })
})

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
})
