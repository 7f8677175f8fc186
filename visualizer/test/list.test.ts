import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Outline, TextHit } from '../src/contract'
import { arranged, grouped, totalsOf } from '../src/pages/arranged'
import { COLUMNS } from '../src/pages/columns'
import { conditionOf, type Filter, filterIn, fits, NEWEST_FIRST, NO_FILTER, optionsOf, orderIn, SCORES, STANDINGS } from '../src/pages/filter'
import { addressOf, placeOf } from '../src/pages/find'
import { marks } from '../src/parts/excerpt'
import { scoreText } from '../src/parts/listrows'
import { parse, to } from '../src/state/route'

function run(facts: Partial<Outline>): Outline {
  return {
    run_id: 'r', parent_id: null, parent_call_id: null, depth: 0, query: '', model: 'm', status: 'ended', stop_reason: 'answer',
    answer_source: '', limit: null, error: null, answer: null, steps: 0, calls: 0, tokens: 0, cost_usd: null, seconds: 0, started: 0,
    attempts: 1, children: 0, deepest: 0, all_calls: 0, ...facts,
  }
}

const text = fc.string({ unit: 'grapheme', maxLength: 40 })
const filters: fc.Arbitrary<Filter> = fc.record({
  words: text,
  standing: fc.constantFrom('', ...STANDINGS),
  model: text,
  tag: text,
  score: fc.constantFrom('', ...SCORES.map(([value]) => value)),
  group: text,
})

describe('the filter in the address', () => {
  it('comes back as it was', () => {
    fc.assert(
      fc.property(filters, fc.constantFrom(...COLUMNS), fc.boolean(), (filter, { name }, descending) => {
        const address = to.list(optionsOf(filter, { column: name, descending }))
        const route = parse(address)
        expect(route.page).toBe('list')
        const options = (route as { options: string }).options
        expect(filterIn(options)).toEqual(filter)
        expect(orderIn(options)).toEqual({ column: name, descending })
      }),
    )
  })

  it('is empty where nothing is filtered', () => {
    expect(to.list(optionsOf(NO_FILTER, NEWEST_FIRST))).toBe('#/')
    expect(parse('#/find?q=a%20b&status=error')).toEqual({ page: 'find', options: 'q=a%20b&status=error' })
  })

  it('may be anything', () => {
    fc.assert(
      fc.property(fc.string(), (options) => {
        const filter = filterIn(options)
        expect(['', ...STANDINGS]).toContain(filter.standing)
        expect(filter.words.length).toBeLessThanOrEqual(500)
        expect(COLUMNS.map(({ name }) => name)).toContain(orderIn(options).column)
      }),
    )
    expect(filterIn('status=evil&score=1e9')).toEqual(NO_FILTER)
    expect(orderIn('sort=-evil')).toEqual(NEWEST_FIRST)
  })
})

describe('the condition for the server', () => {
  it('names what is filtered, in quotes', () => {
    expect(conditionOf(NO_FILTER)).toBe('')
    expect(conditionOf({ ...NO_FILTER, words: 'x', standing: 'error', model: 'a/"b\\', tag: 't', score: '0.8' })).toBe(
      'status=error and model="a/\\"b\\\\" and tag="t" and score>=0.8',
    )
  })
})

describe('filtering', () => {
  const one = run({ query: 'Why?', tags: ['good'], score: 0.9, group: { kind: 'chat', name: 'c' } })

  it('looks at tags, scores and groups', () => {
    const told = (part: Partial<Filter>, of: Outline = one): boolean => fits(of, { ...NO_FILTER, ...part }, 'answer')
    expect(told({ tag: 'good' })).toBe(true)
    expect(told({ tag: 'goo' })).toBe(false)
    expect(told({ words: 'why GOOD' })).toBe(true)
    expect(told({ group: 'chat:c' })).toBe(true)
    expect(told({ group: 'chat:d' })).toBe(false)
    expect(SCORES.map(([score]) => told({ score }))).toEqual([true, true, false, false])
    expect(SCORES.map(([score]) => told({ score }, run({ score: 0 })))).toEqual([false, false, true, false])
    expect(SCORES.map(([score]) => told({ score }, run({ score: null })))).toEqual([false, false, false, true])
  })

  it('counts a run that used up its steps as one at a limit', () => {
    const found = (standing: string, of: string): boolean => fits(one, { ...NO_FILTER, standing }, of)
    expect([found('limit', 'steps'), found('limit', 'limit'), found('steps', 'limit')]).toEqual([true, true, false])
  })

  it('sorts by score, those without one last', () => {
    const runs = [run({ run_id: 'a', score: null }), run({ run_id: 'b', score: -1 }), run({ run_id: 'c', score: 1 })]
    expect(arranged(runs, NO_FILTER, 'score', true, () => '').map((each) => each.run_id)).toEqual(['c', 'b', 'a'])
  })
})

describe('groups', () => {
  const chat = { kind: 'chat', name: 'c' }
  const runs = [
    run({ run_id: 'a' }),
    run({ run_id: 'b', group: chat, tokens: 2, cost_usd: 0.5, score: 1 }),
    run({ run_id: 'd', group: { kind: 'batch', name: 'alone' } }),
    run({ run_id: 'e', group: chat, tokens: 3, cost_usd: 0.25, score: 0 }),
  ]

  it('are one row until they are opened', () => {
    const closed = grouped(runs, new Set())
    expect(closed.map((item) => ('run' in item ? item.run.run_id : item.group.key))).toEqual(['a', 'chat:c', 'd'])
    const open = grouped(runs, new Set(['chat:c']))
    expect(open.map((item) => ('run' in item ? item.run.run_id : item.group.key))).toEqual(['a', 'chat:c', 'b', 'e', 'd'])
    expect(open.map((item) => 'run' in item && item.inGroup)).toEqual([false, false, true, true, false])
  })

  it('add up, and an unknown cost stays unknown', () => {
    expect(totalsOf([runs[1]!, runs[3]!])).toEqual({ tokens: 5, cost_usd: 0.75, seconds: 0, score: 0.5 })
    expect(totalsOf(runs).cost_usd).toBe(null)
    expect(totalsOf([]).score).toBe(null)
  })

  it('lose no run, whatever the groups are called', () => {
    fc.assert(
      fc.property(fc.array(fc.option(fc.constantFrom('x', 'y', '__proto__'), { nil: undefined }), { maxLength: 12 }), (names) => {
        const all = names.map((name, at) => run({ run_id: `${at}`, ...(name && { group: { kind: 'chat', name } }) }))
        const open = new Set(['chat:x', 'chat:y', 'chat:__proto__'])
        const shown = grouped(all, open).flatMap((item) => ('run' in item ? [item.run.run_id] : []))
        expect(shown.sort()).toEqual(all.map((each) => each.run_id).sort())
      }),
    )
  })
})

describe('texts that were found', () => {
  const hit: TextHit = { run_id: 'r/1', step: 3, index: 7, kind: 'output', cell: 2, excerpt: '' }

  it('open at their place and say where it is', () => {
    expect(addressOf(hit, 'a & b')).toBe('#/run/r%2F1/step/3?hit=7&q=a%20%26%20b')
    expect(addressOf({ ...hit, kind: 'answer' }, 'x')).toBe('#/run/r%2F1?hit=7&q=x')
    expect(placeOf(hit, 'r/1')).toBe('step 3, output of cell 2')
    expect(placeOf({ ...hit, run_id: 'root-abcdef0123', kind: 'query', cell: null }, 'root')).toBe('child run abcdef0123, query')
  })

  it('are marked without losing a character', () => {
    expect(marks('The ships sail', 'SHIP "sail"')).toEqual(['The ', 'ship', 's ', 'sail', ''])
    fc.assert(fc.property(fc.string({ unit: 'grapheme' }), fc.string({ unit: 'grapheme' }), (line, words) => void expect(marks(line, words).join('')).toBe(line)))
  })
})

describe('scores', () => {
  it('are short', () => {
    expect([0.12345, 1, null, undefined, NaN, -2].map(scoreText)).toEqual(['0.123', '1', '–', '–', '–', '-2'])
  })
})
