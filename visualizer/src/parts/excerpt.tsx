/** A piece of a text with the words that were searched for. */

import type { JSX } from 'preact'
import { oneLine } from '../text/hostile'

/** Splits a line at the words, in any case; every second part is one of them. */
export function marks(line: string, words: string): string[] {
  const wanted = words.toLowerCase().split(/[\s"]+/).filter(Boolean).slice(0, 20)
  const low = line.toLowerCase()
  const parts: string[] = []
  let at = 0
  // Where lower case has another length, places would not be the same in both.
  while (at < line.length && low.length === line.length) {
    const next = wanted
      .map((word) => ({ start: low.indexOf(word, at), length: word.length }))
      .filter(({ start }) => start >= 0)
      .sort((a, b) => a.start - b.start || b.length - a.length)[0]
    if (!next) break
    parts.push(line.slice(at, next.start), line.slice(next.start, next.start + next.length))
    at = next.start + next.length
  }
  parts.push(line.slice(at))
  return parts
}

export function Excerpt({ text, words }: { text: string; words: string }): JSX.Element {
  return (
    <bdi class="line" dir="auto">
      {marks(oneLine(text, 260), words).map((part, at) => (at % 2 ? <mark key={at}>{part}</mark> : part))}
    </bdi>
  )
}
