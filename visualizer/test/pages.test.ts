import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Outline } from '../src/contract'
import { arranged } from '../src/pages/arranged'
import { COLUMNS } from '../src/pages/columns'
import { NO_FILTER } from '../src/pages/filter'
import { opensByItself } from '../src/pages/compare'
import { placeOf } from '../src/pages/search'
import { excerptOf, labelOf, remarkOf } from '../src/parts/citations'
import { standing } from '../src/parts/small'
import { treeRows } from '../src/parts/tree'
import { parse, to } from '../src/state/route'
// @ts-expect-error A plain script without types.
import { typesFrom } from '../tools/types.mjs'

const HERE = fileURLToPath(new URL('..', import.meta.url))

function run(facts: Partial<Outline>): Outline {
  return {
    run_id: 'r', parent_id: null, parent_call_id: null, depth: 0, query: '', model: 'm', status: 'ended', stop_reason: 'answer',
    answer_source: '', limit: null, error: null, answer: null, steps: 0, calls: 0, tokens: 0, cost_usd: null, seconds: 0, started: 0,
    attempts: 1, children: 0, deepest: 0, all_calls: 0, ...facts,
  }
}

describe('comparing', () => {
  it('shows the steps that differ, and not those that are equal', () => {
    expect(opensByItself(undefined, null)).toBe(false)
    expect(opensByItself(['a', 'a'], null)).toBe(false)
    expect(opensByItself(['a', 'b'], null)).toBe(true)
    expect(opensByItself(['a', ''], null)).toBe(true)
    expect(opensByItself(['a', 'a'], true)).toBe(true)
    expect(opensByItself(['a', 'b'], false)).toBe(false)
  })
})

describe('citations', () => {
  const citation = { file: 'a.txt', start: 0, end: 9, start_line: 12, end_line: 14, text: 'one\n  two' }

  it('name their place and show one line of text', () => {
    expect(labelOf(citation)).toBe('a.txt:12–14')
    expect(labelOf({ ...citation, file: null, end_line: 12 })).toBe('line 12')
    expect(excerptOf(citation)).toBe('one two')
    expect(excerptOf({ ...citation, cut_chars: 3 })).toBe('one two […]')
    expect(excerptOf({ ...citation, text: 'x'.repeat(500) })).toHaveLength(404)
  })

  it('say what is not listed', () => {
    expect(remarkOf({})).toBe('')
    expect(remarkOf({ unsupported_quotes: 2, omitted_citations: 1 })).toBe('2 not found in the context, 1 not listed')
  })
})

describe('places of hits', () => {
  it('say which text of which cell or call it is', () => {
    const hit = { run_id: 'r', step: 3, index: 7, type: 'call_started', field: 'prompt', cell: null, call_id: 'r-1.ab12.4', excerpt: '' }
    expect(placeOf(hit)).toBe('step 3, prompt of call ab12.4')
    expect(placeOf({ ...hit, type: 'call_ended', field: 'error' })).toBe('step 3, error of call ab12.4')
    expect(placeOf({ ...hit, type: 'cell_output', field: 'text', cell: 2, call_id: null })).toBe('step 3, output of cell 2')
    expect(placeOf({ ...hit, type: 'run_started', field: 'query', step: 0, call_id: null })).toBe('start, query')
    expect(placeOf({ ...hit, type: 'model_replied', field: 'reasoning', call_id: null })).toBe('step 3, reasoning')
    expect(placeOf({ ...hit, type: 'model_asked', field: 'new_messages', call_id: null })).toBe('step 3, sent to the model')
  })
})

describe('addresses', () => {
  it('lead where they say', () => {
    expect(parse(to.list())).toEqual({ page: 'list', options: '' })
    expect(parse(to.step('a/b ü', 3, 'x.1&2'))).toEqual({ page: 'run', runId: 'a/b ü', step: 3, call: 'x.1&2', hit: null })
    expect(parse(to.coverage('r'))).toEqual({ page: 'coverage', runId: 'r' })
    expect(parse(to.search('r', 'a b?'))).toEqual({ page: 'search', runId: 'r', words: 'a b?' })
    expect(parse(to.compare('a', 'b'))).toEqual({ page: 'compare', one: 'a', other: 'b' })
  })

  it('of any other kind lead to the list or to a run', () => {
    expect(parse('#/run/%E0%A4%A/step/x')).toMatchObject({ page: 'run', step: null })
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (hash) => void parse(hash)))
    fc.assert(
      fc.property(fc.string({ minLength: 1, unit: 'grapheme' }), fc.nat(1e6), (id, step) => {
        expect(parse(to.step(id, step))).toEqual({ page: 'run', runId: id, step, call: null, hit: null })
        expect(parse(to.hit(id, step, step, id, id))).toEqual({ page: 'run', runId: id, step, call: id, hit: { index: step, words: id } })
        expect(parse(to.hit(id, null, 0, id))).toEqual({ page: 'run', runId: id, step: null, call: null, hit: { index: 0, words: id } })
      }),
    )
  })
})

describe('the list', () => {
  const runs = [
    run({ run_id: 'a', query: 'Why is the sky blue?', tokens: 5, cost_usd: null, started: 1 }),
    run({ run_id: 'b', query: 'How many words?', tokens: 9, cost_usd: 0.1, status: 'running', stop_reason: '', started: 2 }),
    run({ run_id: 'c', query: 'how long?', model: 'n', tokens: 1, cost_usd: 0.01, stop_reason: 'limit', answer: 'blue', started: 3 }),
  ]
  const ids = (found: Outline[]): string => found.map((each) => each.run_id).join('')

  it('is filtered by words, status and model', () => {
    expect(ids(arranged(runs, { ...NO_FILTER, words: 'BLUE' }, 'started', false, standing))).toBe('ac')
    expect(ids(arranged(runs, { ...NO_FILTER, words: 'how words' }, 'started', false, standing))).toBe('b')
    expect(ids(arranged(runs, { ...NO_FILTER, standing: 'running' }, 'started', false, standing))).toBe('b')
    expect(ids(arranged(runs, { ...NO_FILTER, model: 'n' }, 'started', false, standing))).toBe('c')
  })

  it('is sorted by every column, both ways', () => {
    expect(ids(arranged(runs, NO_FILTER, 'tokens', true, standing))).toBe('bac')
    expect(ids(arranged(runs, NO_FILTER, 'cost', true, standing))).toBe('bca')
    expect(ids(arranged(runs, NO_FILTER, 'query', false, standing))).toBe('cba')
    for (const { name } of COLUMNS) expect(arranged(runs, NO_FILTER, name, false, standing)).toHaveLength(3)
  })

  it('has one word for how a run stands', () => {
    expect(runs.map(standing)).toEqual(['answer', 'running', 'limit'])
    expect(standing(run({ stop_reason: 'error', error: 'x' }))).toBe('error')
    expect(standing(run({ status: 'interrupted' }))).toBe('interrupted')
    expect(standing(run({ stop_reason: 'passages' }))).toBe('passages')
  })
})

describe('the tree', () => {
  const tree = [run({ run_id: 'r' }), run({ run_id: 'a', parent_id: 'r' }), run({ run_id: 'b', parent_id: 'a' }), run({ run_id: 'c', parent_id: 'r' })]

  it('shows children below their parents, and hides those of a closed one', () => {
    const rows = (closed: string[]): string => treeRows(tree, new Set(closed)).map((row) => `${row.level}${row.run.run_id}`).join(' ')
    expect(rows([])).toBe('0r 1a 2b 1c')
    expect(rows(['a'])).toBe('0r 1a 1c')
    expect(rows(['r'])).toBe('0r')
  })
})

describe('the sources', () => {
  const files = readdirSync(join(HERE, 'src'), { recursive: true, encoding: 'utf8' }).filter((name) => /\.tsx?$/.test(name))

  it('never make markup or code out of text', () => {
    expect(files.length).toBeGreaterThan(30)
    for (const name of files) {
      const text = readFileSync(join(HERE, 'src', name), 'utf8')
      expect(text, name).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|\beval\(|new Function|srcdoc|DOMParser/)
    }
  })

  it('have types that are current', () => {
    const schema = readFileSync(join(HERE, '..', 'src', 'rlm', 'records', 'events.schema.json'))
    expect(readFileSync(join(HERE, 'src', 'events.ts'), 'utf8') === typesFrom(schema), 'run npm run types').toBe(true)
  })
})
