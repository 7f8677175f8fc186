/** The text that a search led to: it is scrolled to, and its words are marked. */

import { useEffect, useRef } from 'preact/hooks'
import { route } from './route'

/** The number of an event within its run, and the words that were searched for in it. */
export interface HitPlace {
  readonly index: number
  readonly words: string
}

const NAME = 'hit'
const TRIES = 40
const PAUSE_MS = 100

export function currentHit(): HitPlace | null {
  return route.value.page === 'run' ? route.value.hit : null
}

/** Where the words are in a text, in any case: all of them as they stand, else the first of them that is there. */
export function placeIn(text: string, words: string): { start: number; end: number } | null {
  const low = text.toLowerCase()
  // Where lower case has another length, places would not be the same in both.
  const [where, of] = low.length === text.length ? [low, words.toLowerCase()] : [text, words]
  const bare = of.trim()
  if (!bare) return null
  const whole = where.indexOf(bare)
  if (whole >= 0) return { start: whole, end: whole + bare.length }
  const found = bare
    .split(/[\s"]+/)
    .filter(Boolean)
    .slice(0, 20)
    .map((word) => ({ start: where.indexOf(word), end: where.indexOf(word) + word.length }))
    .filter(({ start }) => start >= 0)
    .sort((a, b) => a.start - b.start)
  return found[0] ?? null
}

/** The words in the text nodes of an element: they may be spread over many. */
export function rangeIn(element: HTMLElement, words: string): Range | null {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT)
  const nodes: Text[] = []
  while (walker.nextNode()) nodes.push(walker.currentNode as Text)
  const place = placeIn(nodes.map((node) => node.data).join(''), words)
  if (!place) return null
  const range = document.createRange()
  let at = 0
  for (const node of nodes) {
    const end = at + node.data.length
    if (at <= place.start && place.start < end) range.setStart(node, place.start - at)
    if (at < place.end && place.end <= end) {
      range.setEnd(node, place.end - at)
      return range
    }
    at = end
  }
  return null
}

/** Scrolls everything around a range so that it is in the middle. */
function show(range: Range): void {
  for (let box = range.startContainer.parentElement; box; box = box.parentElement) {
    if (box instanceof HTMLDetailsElement) box.open = true
    if (box.scrollHeight <= box.clientHeight && box.scrollWidth <= box.clientWidth) continue
    const frame = box === document.documentElement ? new DOMRect(0, 0, innerWidth, innerHeight) : box.getBoundingClientRect()
    const place = range.getBoundingClientRect()
    if (place.top < frame.top || place.bottom > frame.bottom) box.scrollTop += place.top - frame.top - frame.height / 2
    if (place.left < frame.left || place.right > frame.right) box.scrollLeft += place.left - frame.left - frame.width / 2
  }
}

function mark(range: Range): void {
  // Text stays as it is: a highlight adds no elements. Where there are none, the text is only scrolled to.
  if (typeof Highlight !== 'undefined') CSS.highlights.set(NAME, new Highlight(range))
}

/** What was marked last: later renderings of the same page do not scroll again. */
let done = ''

/** The element that has the words: several may show texts of the same event. */
let owner: HTMLElement | null = null

export function forgetHit(): void {
  done = ''
  owner = null
  if (typeof Highlight !== 'undefined') CSS.highlights.delete(NAME)
}

/** Marks the words of the hit in the element, if its text is that of the event; `shown` changes with the text. */
export function useHit<T extends HTMLElement>(index: number | undefined, shown: unknown): { current: T | null } {
  const box = useRef<T | null>(null)
  const hit = currentHit()
  const key = hit && hit.index === index ? `${location.hash}` : ''
  useEffect(() => {
    if (!key || !hit || done === key) return
    let tries = 0
    let timer: ReturnType<typeof setTimeout> | undefined
    const look = (): void => {
      if (!box.current || done === key || (owner?.isConnected && owner !== box.current)) return
      const range = rangeIn(box.current, hit.words)
      if (!range) return
      owner = box.current
      show(range)
      mark(range)
      // What is above may still be loading: it is there once the text stays where it is.
      const { top } = range.getBoundingClientRect()
      const isSeen = top >= 0 && top < innerHeight
      if (isSeen && tries > 3) done = key
      else if ((tries += 1) < TRIES) timer = setTimeout(look, PAUSE_MS)
    }
    look()
    return () => clearTimeout(timer)
  }, [key, shown])
  return box
}
