import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { diff, folded } from '../src/text/diff'
import { bytes, costWords, count, dollars, moment, onAxis, percent, plural, seconds, short, ticks } from '../src/text/format'
import { parts, withCell } from '../src/text/reply'

describe('numbers', () => {
  it('are short and keep their meaning', () => {
    expect([0, 999, 9_999, 12_345, 999_960, 1_234_567, null].map(short)).toEqual(['0', '999', '9,999', '12.3 k', '1.00 M', '1.23 M', '–'])
    expect([0, 0.0123, 0.99999, 3.456, 61, 3_725, 400_000].map(seconds)).toEqual(['0 s', '12 ms', '1.00 s', '3.46 s', '1 min 01 s', '1 h 02 min', '4 days'])
    expect([null, 0, 0.00000012, 0.0083, 0.5, 12.345, 12_345].map(dollars)).toEqual(['unknown', '$0', '<$0.000001', '$0.0083', '$0.500', '$12.35', '$12,345'])
    expect([null, undefined, NaN, 0.5].map(costWords)).toEqual(['cost unknown', 'cost unknown', 'cost unknown', '$0.500'])
    expect([12, 324_841, 5_000_000_000].map(bytes)).toEqual(['12 B', '325 kB', '5.00 GB'])
    expect([0, 0.01, 12.34, 99.99, 100].map(percent)).toEqual(['0 %', '<0.1 %', '12.3 %', '>99.9 %', '100 %'])
    expect([plural(1, 'step'), plural(2_000, 'step')]).toEqual(['1 step', '2,000 steps'])
    expect(count(Number.NaN)).toBe('–')
    expect(moment(0)).toBe('–')
  })

  it('on an axis can be told apart', () => {
    expect([onAxis(0, 1), onAxis(96.02, 0.02), onAxis(96.04, 0.02), onAxis(0.5, 0.5), onAxis(20, 20), onAxis(120, 20), onAxis(100, 20)]).toEqual([
      '0 s', '96.02 s', '96.04 s', '0.5 s', '20 s', '2 min', '1 min 40 s',
    ])
  })

  it('are always words, never an exception', () => {
    fc.assert(
      fc.property(fc.double(), (value) => {
        for (const format of [count, short, seconds, dollars, costWords, bytes, percent, moment]) expect(format(value)).toMatch(/\S/)
      }),
    )
  })

  it('have round ticks that reach no further than the axis', () => {
    expect(ticks(7855)).toEqual([0, 2000, 4000, 6000])
    fc.assert(
      fc.property(fc.double({ min: 1e-9, max: 1e12, noNaN: true }), fc.integer({ min: 1, max: 12 }), (most, wanted) => {
        const all = ticks(most, wanted)
        expect(all[0]).toBe(0)
        expect(all.at(-1)).toBeLessThanOrEqual(most * 1.000001)
        expect(all.length).toBeLessThanOrEqual(wanted * 2 + 1)
      }),
    )
  })
})

const lines = fc.array(fc.constantFrom('a', 'b', 'c', ''), { maxLength: 30 }).map((all) => all.join('\n'))

describe('differences', () => {
  it('are the fewest lines that differ', () => {
    expect(diff('a\nb\nc', 'a\nx\nc').map((line) => `${line.kind[0]}${line.text}`)).toEqual(['sa', 'rb', 'ax', 'sc'])
    expect(diff('a\nb\nc\nd', 'b\nd\ne').map((line) => `${line.kind[0]}${line.text}`)).toEqual(['ra', 'sb', 'rc', 'sd', 'ae'])
  })

  it('give both texts back', () => {
    fc.assert(
      fc.property(lines, lines, (one, other) => {
        const found = diff(one, other)
        expect(found.filter((line) => line.kind !== 'added').map((line) => line.text).join('\n')).toBe(one)
        expect(found.filter((line) => line.kind !== 'removed').map((line) => line.text).join('\n')).toBe(other)
      }),
      { numRuns: 500 },
    )
  })

  it('end, however much differs', () => {
    const one = Array.from({ length: 3_000 }, (_, at) => `a${at}`).join('\n')
    const other = Array.from({ length: 3_000 }, (_, at) => `b${at}`).join('\n')
    expect(diff(one, other)).toHaveLength(6_000)
  })

  it('are folded where nothing differs', () => {
    const same = Array.from({ length: 20 }, (_, at) => String(at)).join('\n')
    expect(folded(diff(same, `${same}\nmore`))[0]).toEqual({ folded: 17 })
  })
})

describe('replies', () => {
  const text = 'First.\n\n```repl\nx = 1\n```\n\nThen.\n\n```repl\nx = 1\n```\n\n```text\nx\n```'

  it('hold their cells where they stood', () => {
    const found = parts(text, new Map([[1, 'x = 1'], [2, 'x = 1\n'], [3, 'other']]))
    expect(found.map((part) => (part.kind === 'cell' ? part.cell : 'words'))).toEqual(['words', 1, 'words', 2, 'words'])
  })

  it('take an edited cell back in its place', () => {
    expect(withCell(text, 'x = 1\n', 'x = 2\n', 1)).toBe('First.\n\n```repl\nx = 1\n```\n\nThen.\n\n```repl\nx = 2\n```\n\n```text\nx\n```')
    expect(withCell(text, 'y', 'z')).toBeNull()
    expect(withCell(text, 'x = 1', 'z', 2)).toBeNull()
    expect(withCell(text, '  ', 'z')).toBeNull()
  })

  it('keep dollar signs of an edited cell', () => {
    expect(withCell('```\na\n```', 'a', "b$&$'")).toBe("```\nb$&$'\n```")
  })
})
