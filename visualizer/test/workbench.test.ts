import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { CallRow, Coverage, ResultList, ResultSample, StepRow } from '../src/contract'
import { gantt } from '../src/layout/gantt'
import { differ, figurePairs, filtered, samplePairs } from '../src/layout/results'
import { pieces } from '../src/pages/context'
import { readingWords } from '../src/pages/coverage'
import { largest } from '../src/parts/usagetables'
import { parse, to } from '../src/state/route'

function sample(facts: Partial<ResultSample>): ResultSample {
  return {
    folder: 0, key: 'k', task: 't', size: 2000, size_words: '2k', method: 'rlm', name: '#0', status: 'scored', score: 1,
    answer: 'a', gold: 'a', error: null, cost_usd: 0, tokens: 0, seconds: 0, run_id: 'r', ...facts,
  }
}

function results(samples: readonly ResultSample[], folders = 2): ResultList {
  const folder = { name: 'f', model: 'm', sub_model: 'm', engine: '', live: false, cost_usd: null }
  return { kind: 'bench', folders: Array.from({ length: folders }, () => folder), figures: [], samples, left_out: 0 }
}

const NONE = { task: '', size: '', method: '', only: '' }

describe('results', () => {
  it('puts the same sample of two folders side by side', () => {
    const pairs = samplePairs(results([sample({}), sample({ folder: 1, score: 0 }), sample({ key: 'only A' })]))
    expect(pairs.map(({ key, both }) => [key, ...both.map((each) => each?.score)])).toEqual([['k', 1, 0], ['only A', 1, undefined]])
    expect(pairs.map(differ)).toEqual([true, true])
    expect(samplePairs(results([sample({})], 1)).map(differ)).toEqual([false])
  })

  it('compares answers where there are no scores', () => {
    const [same, other] = [sample({ score: null }), sample({ folder: 1, score: null })]
    expect(samplePairs(results([same, other])).map(differ)).toEqual([false])
    expect(samplePairs(results([same, { ...other, answer: 'b' }])).map(differ)).toEqual([true])
  })

  it('is filtered by task, size, method and outcome', () => {
    const all = [sample({ key: '1' }), sample({ key: '2', task: 'u', score: 0.5 }), sample({ key: '3', size: 8000, method: 'plain', score: null, status: 'failed' })]
    const pairs = samplePairs(results(all, 1))
    const keys = (filter: Partial<typeof NONE>): string[] => filtered(pairs, { ...NONE, ...filter }).map(({ key }) => key)
    expect(keys({})).toEqual(['1', '2', '3'])
    expect(keys({ task: 'u' })).toEqual(['2'])
    expect(keys({ size: '8000' })).toEqual(['3'])
    expect(keys({ method: 'plain', size: '2000' })).toEqual([])
    expect(keys({ only: 'wrong' })).toEqual(['2'])
    expect(keys({ only: 'failed' })).toEqual(['3'])
    expect(keys({ only: 'differ' })).toEqual([])
  })

  it('takes names of objects for nothing but names', () => {
    const pairs = samplePairs(results([sample({ key: '__proto__' }), sample({ key: 'constructor', folder: 7 })]))
    expect(pairs.map(({ key }) => key)).toEqual(['__proto__', 'constructor'])
    expect(pairs[1]!.both).toEqual([null, null])
    expect(filtered(pairs, NONE)).toHaveLength(1)
    expect(figurePairs(results([]))).toEqual([])
  })
})

describe('the timeline', () => {
  const row = (kind: CallRow['kind'], start: number, end: number | null): CallRow => ({
    call_id: `${kind}${start}`, run_id: 'r', depth: 0, step: 1, kind, model: '', start, end, tokens: 0, cost_usd: null,
    error: null, stored: false, retries: 0, child_run_id: null, prompt: '', reply: '',
  })

  it('has a band for steps, requests, cells, operators and calls, from above', () => {
    const found = gantt([row('llm', 3, 9), row('llm', 4, 9), row('cell', 2, 9), row('step', 1, 9), row('request', 1, 2), row('operator', 2.5, 9)], 9)
    const lanes = found.bars.map((bar) => [bar.call.kind, bar.lane])
    expect(lanes).toEqual([['step', 0], ['request', 1], ['cell', 2], ['operator', 3], ['llm', 4], ['llm', 5]])
    expect([found.lanes, found.most]).toEqual([6, 2])
  })

  it('lets no two bars of a lane overlap', () => {
    const kinds = ['step', 'request', 'cell', 'operator', 'llm', 'rlm', 'tool', 'run'] as const
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.constantFrom(...kinds), fc.nat(50), fc.nat(20)), { maxLength: 60 }), (all) => {
        const { bars, lanes } = gantt(all.map(([kind, start, long]) => row(kind, start, start + long)), 0)
        for (const one of bars) {
          expect(one.lane).toBeLessThan(lanes)
          const overlapping = bars.filter((bar) => bar !== one && bar.lane === one.lane && bar.start < one.end && one.start < bar.end)
          expect(overlapping).toEqual([])
        }
      }),
    )
  })
})

describe('a row of the context', () => {
  const coverage = { available: true, spans: [{ start: 2, end: 6, readers: [0, 1] }] } as unknown as Coverage

  it('is cut where readers change and where something is meant', () => {
    expect(pieces({ start: 0, end: 10 }, coverage, { start: 4, end: 8 })).toEqual([
      { start: 0, end: 2, readers: 0, isMeant: false },
      { start: 2, end: 4, readers: 2, isMeant: false },
      { start: 4, end: 6, readers: 2, isMeant: true },
      { start: 6, end: 8, readers: 0, isMeant: true },
      { start: 8, end: 10, readers: 0, isMeant: false },
    ])
    expect(pieces({ start: 0, end: 0 }, null, null)).toEqual([])
  })

  it('keeps every character once, whatever is meant', () => {
    fc.assert(
      fc.property(fc.nat(20), fc.nat(20), fc.nat(30), fc.nat(30), (start, long, from, until) => {
        const meant = { start: Math.min(from, until), end: Math.max(from, until) }
        const found = pieces({ start, end: start + long }, coverage, meant)
        let at = start
        for (const piece of found) {
          expect(piece.start).toBe(at)
          expect(piece.isMeant).toBe(meant.start <= piece.start && piece.end <= meant.end)
          at = piece.end
        }
        expect(at).toBe(start + long)
      }),
    )
  })

  it('names its readers', () => {
    const reader = { run_id: 'r', step: 1, call_id: null, cell: 2 }
    expect(readingWords({ ...reader, kind: 'printed' })).toBe('printed by cell 2')
    expect(readingWords({ ...reader, kind: 'call', cell: null })).toBe('sent to a call')
    expect(readingWords({ ...reader, kind: 'request', cell: null })).toBe('sent in the first request of the run')
  })
})

describe('addresses', () => {
  it('lead to a place of the context, and back', () => {
    expect(parse(to.context('a/b'))).toEqual({ page: 'context', runId: 'a/b', place: { at: null, end: null, citation: null } })
    expect(parse(to.context('r', { at: 5, end: 9 }))).toMatchObject({ place: { at: 5, end: 9, citation: null } })
    expect(parse(to.context('r', { citation: 0 }))).toMatchObject({ place: { at: null, citation: 0 } })
    for (const hostile of ['-1', '1e9', 'x', '9'.repeat(40), '<b>', '']) {
      expect(parse(`#/run/r/context?at=${hostile}`)).toMatchObject({ place: { at: null } })
    }
  })

  it('keep the filter of results', () => {
    expect(parse(to.results({ task: 'a&b=c#', only: '' }))).toEqual({ page: 'results', filter: { task: 'a&b=c#' } })
    expect(parse('#/results')).toEqual({ page: 'results', filter: {} })
  })
})

describe('usage by step', () => {
  it('shows the largest of very many steps, in their order', () => {
    const steps = [5, 1, 9, 3].map((tokens, step) => ({ step, tokens }) as StepRow)
    expect(largest(steps, 9)).toEqual(steps)
    expect(largest(steps, 2).map(({ step }) => step)).toEqual([0, 2])
  })
})
