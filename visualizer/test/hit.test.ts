import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { placeIn } from '../src/state/hit'

describe('the place of words in a text', () => {
  it('is where they stand together, else where the first of them is', () => {
    expect(placeIn('The seven Ships', 'seven ships')).toEqual({ start: 4, end: 15 })
    expect(placeIn('ships, seven of them', 'seven "ships"')).toEqual({ start: 0, end: 5 })
    expect(placeIn('nothing', 'ships')).toBeNull()
    expect(placeIn('nothing', '  ')).toBeNull()
    expect(placeIn('İ ships', 'ships')).toEqual({ start: 2, end: 7 })
  })

  it('always lies within the text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (text, words) => {
        const place = placeIn(text, words)
        if (place) expect(place.start >= 0 && place.start < place.end && place.end <= text.length).toBe(true)
      }),
    )
  })
})
