import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { cut, oneLine, pieces, visible } from '../src/text/hostile'

const nasty = fc.string({ unit: fc.oneof(fc.constantFrom('\u202e', '\u200b', '\x1b', '\ud83d', '\udc00', '\u{e0041}', '😀', 'a', '\r', '\n', '\t'), fc.string({ minLength: 1, maxLength: 1, unit: 'binary' })) })

describe('hostile text', () => {
  it('shows terminal escapes by their names', () => {
    expect(visible('\x1b[31mred\x07')).toBe('⟨ESC⟩[31mred⟨BEL⟩')
  })

  it('names direction overrides and zero-width characters', () => {
    expect(visible('a\u202eb\u200bc')).toBe('a⟨U+202E⟩b⟨U+200B⟩c')
    expect(pieces('\u202e')).toEqual([{ symbol: '⟨U+202E⟩', name: 'right-to-left override, U+202E' }])
  })

  it('shows half a pair and leaves whole pairs alone', () => {
    expect(visible('x\ud800y')).toBe('x⟨U+D800⟩y')
    expect(visible('\udc00')).toBe('⟨U+DC00⟩')
    expect(visible('👩‍👧 😀')).toBe('👩‍👧 😀')
  })

  it('shows letters that are hidden in tag characters', () => {
    expect(visible('a\u{e0041}')).toBe('a⟨U+E0041⟩')
  })

  it('keeps tabs and line ends, and marks a lone carriage return', () => {
    expect(visible('a\tb\nc\r\nd\re')).toBe('a\tb\nc\r\nd⟨CR⟩e')
  })

  it('leaves markup as the text it is', () => {
    expect(pieces('<script>alert(1)</script>')).toEqual(['<script>alert(1)</script>'])
  })

  it('loses nothing that could be seen, and lets nothing invisible through', () => {
    fc.assert(
      fc.property(nasty, (text) => {
        const shown = visible(text)
        expect(shown).not.toMatch(/[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff]/)
        expect(shown.isWellFormed()).toBe(true)
        const plain = text.replace(/[^ -~]/g, '')
        expect(shown.replace(/⟨[^⟩]*⟩/g, '').replace(/[^ -~]/g, '')).toBe(plain)
      }),
    )
  })

  it('cuts without halving a pair', () => {
    expect(cut('a😀', 2)).toBe('a')
    expect(cut('ab', 2)).toBe('ab')
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.integer({ min: 1, max: 50 }), (text, most) => {
        const short = cut(text, most)
        expect(short.length).toBeLessThanOrEqual(most)
        expect(text.startsWith(short)).toBe(true)
        expect(short.isWellFormed()).toBe(true)
      }),
    )
  })

  it('makes one line of many', () => {
    expect(oneLine('  a\n\n b\tc ')).toBe('a b c')
    expect(oneLine('x'.repeat(500), 10)).toBe('xxxxxxxxxx…')
  })
})
