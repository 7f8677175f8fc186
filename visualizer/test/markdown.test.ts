import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Block, blocks, type Inline, inlines } from '../src/text/markdown'

function wordsIn(parts: readonly Inline[]): string {
  return parts.map((part) => ('text' in part ? part.text : wordsIn(part.parts))).join('')
}

function allWords(found: readonly Block[]): string {
  return found
    .map((block) => {
      if (block.kind === 'fence') return block.text
      if (block.kind === 'list') return block.items.map((item) => wordsIn(item.parts)).join('\n')
      if (block.kind === 'table') return block.rows.flat().map(wordsIn).join('\n')
      return block.kind === 'rule' ? '' : wordsIn(block.parts)
    })
    .join('\n')
}

describe('markdown', () => {
  it('reads headings, lists, fences and tables', () => {
    const text = '# One *two*\n\nwords\nmore\n\n1. a\n2. b\n   - c\n\n```repl\nx = 1\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n---\n> said'
    const kinds = blocks(text).map((block) => block.kind)
    expect(kinds).toEqual(['heading', 'paragraph', 'list', 'fence', 'table', 'rule', 'quote'])
    const [heading, , list, fence, table] = blocks(text)
    expect(heading).toMatchObject({ level: 1, parts: [{ text: 'One ' }, { kind: 'emphasis' }] })
    expect(list).toMatchObject({ ordered: true, start: 1, items: [{ indent: 0 }, { indent: 0 }, { indent: 1 }] })
    expect(fence).toEqual({ kind: 'fence', language: 'repl', text: 'x = 1' })
    expect(table).toMatchObject({ align: ['left', 'right'], rows: [[[{ text: 'a' }], [{ text: 'b' }]], [[{ text: '1' }], [{ text: '2' }]]] })
  })

  it('takes a fence that never closes to the end', () => {
    expect(blocks('```python\na\n\nb')).toEqual([{ kind: 'fence', language: 'python', text: 'a\n\nb' }])
  })

  it('reads bold, italics and code, and leaves names with underscores alone', () => {
    expect(inlines('**a** *b* `c*` d_e_f')).toEqual([
      { kind: 'strong', parts: [{ kind: 'text', text: 'a' }] },
      { kind: 'text', text: ' ' },
      { kind: 'emphasis', parts: [{ kind: 'text', text: 'b' }] },
      { kind: 'text', text: ' ' },
      { kind: 'code', text: 'c*' },
      { kind: 'text', text: ' d_e_f' },
    ])
  })

  it('knows no links and no markup', () => {
    const text = '[click](javascript:alert(1)) <img src=x onerror=alert(1)>'
    expect(inlines(text)).toEqual([{ kind: 'text', text }])
  })

  it('reads any text, and loses no letter of it', () => {
    const piece = fc.constantFrom('*', '_', '`', '```', '#', '|', '-', '\n', '\\', '>', ' ', '1. ', '|---|', 'a', 'b', '~~~', '\r')
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), (all) => {
        const text = all.join('')
        const letters = (of: string): string => of.replace(/[^ab]/g, '')
        const inFenceLine = /(?:`{3,}|~{3,})[^\n]*[ab]/.test(text)
        if (!inFenceLine) expect(letters(allWords(blocks(text)))).toBe(letters(text))
        else blocks(text)
      }),
      { numRuns: 1000 },
    )
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => void blocks(text)))
  })

  it('is not slowed down by text that was made to slow it down', () => {
    for (const text of ['*'.repeat(60_000), '_a'.repeat(30_000), '`'.repeat(60_000), '|'.repeat(60_000), '> '.repeat(30_000), '- '.repeat(30_000), '*a '.repeat(20_000)]) {
      const steps = blocks(text).length
      expect(steps).toBeGreaterThan(0)
    }
  }, 20_000)
})
