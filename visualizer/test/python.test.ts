import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { tokens } from '../src/text/python'

function of(source: string): string[] {
  return tokens(source).filter((token) => token.kind !== 'plain').map((token) => `${token.kind}:${token.text}`)
}

describe('python', () => {
  it('colours what a reader looks for', () => {
    expect(of("def f(x):  # why\n    return g(f'{x}') + 0x1F")).toEqual([
      'keyword:def',
      'call:f',
      'comment:# why',
      'keyword:return',
      'call:g',
      "string:f'{x}'",
      'number:0x1F',
    ])
  })

  it('ends a string at its line, and a triple one at its quotes', () => {
    expect(of("'open\nx")).toEqual(["string:'open"])
    expect(of('"""a\n"b"\n""" + 1')).toEqual(['string:"""a\n"b"\n"""', 'number:1'])
    expect(of("r'\\' + 'a\\'b'")).toEqual(["string:r'\\' + '", "string:'b'"])
  })

  it('knows the names that cells are given, but not as attributes', () => {
    expect(of('context.context')).toEqual(['name:context'])
    expect(of('llm_query(p)')).toEqual(['name:llm_query'])
  })

  it('knows decorators and not matrix products', () => {
    expect(of('@cache\ndef f(): a @ b')).toContain('decorator:@cache')
    expect(of('a @ b')).toEqual([])
  })

  it('gives the text back, whatever it is', () => {
    const piece = fc.constantFrom("'", '"', '"""', '\\', '\n', '#', '@', 'def', ' ', '1', '.', 'e', 'f', '0x', 'é', '😀', '\ud800')
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.array(piece).map((all) => all.join(''))), (source) => {
        expect(tokens(source).map((token) => token.text).join('')).toBe(source)
      }),
      { numRuns: 1000 },
    )
  })
})
