/** A text of any length: its beginning first, more on demand, never so much that the page is slow. */

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { WholeText } from '../contract'
import { wordsOf } from '../state/asked'
import { currentHit, placeIn, useHit } from '../state/hit'
import { count } from '../text/format'
import { cut, visible } from '../text/hostile'
import { Python, Words } from './words'

const FIRST_CHARS = 3_000
const FIRST_LINES = 40
const PART_CHARS = 60_000

export interface LongTextProps {
  readonly text: string
  /** How long the whole is, if `text` is only its beginning. */
  readonly total?: number | undefined
  readonly load?: (() => Promise<WholeText>) | undefined
  readonly as?: 'plain' | 'python' | 'prose'
  readonly label: string
  readonly first?: number
  /** The number of its event: a search may lead to it. */
  readonly event?: number | undefined
}

function beginning(text: string, chars: number, lines: number): string {
  let at = -1
  for (let line = 0; line < lines; line += 1) {
    at = text.indexOf('\n', at + 1)
    if (at < 0 || at >= chars) return cut(text, chars)
  }
  return text.slice(0, at)
}

export function LongText({ text, total, load, as = 'plain', label, first = FIRST_CHARS, event }: LongTextProps): JSX.Element {
  const [whole, setWhole] = useState<WholeText | null>(null)
  const [part, setPart] = useState(-1)
  const [error, setError] = useState('')
  const known = whole?.text ?? text
  const size = whole ? (whole.chars ?? whole.text.length) : (total ?? text.length)
  const short = beginning(known, first, FIRST_LINES)
  const isShort = part < 0
  const from = isShort ? 0 : part * PART_CHARS
  const shown = isShort ? short : cut(known.slice(from), PART_CHARS)
  const parts = Math.ceil(known.length / PART_CHARS)
  const hidden = size - (from + shown.length)
  const open = async (): Promise<void> => {
    try {
      if (!whole && load && (total ?? 0) > text.length) setWhole(await load())
      setPart(0)
      setError('')
    } catch (failure) {
      setError(wordsOf(failure))
    }
  }
  const hit = currentHit()
  const wanted = hit && hit.index === event ? hit.words : null
  useEffect(() => {
    if (wanted === null) return
    const place = placeIn(known, wanted)
    if (place && place.end > short.length) setPart(Math.floor(place.start / PART_CHARS))
    else if (!place && !whole && (total ?? 0) > text.length) void open()
  }, [wanted, known])
  const box = useHit<HTMLPreElement>(event, shown)
  return (
    <div class={`longtext ${as === 'prose' ? 'prose' : ''}`}>
      <pre ref={box} aria-label={label} tabIndex={0}>
        {as === 'python' ? <Python text={shown} /> : <Words text={shown} />}
      </pre>
      {(hidden > 0 || from > 0 || !isShort) && size > shown.length && (
        <p class="more">
          {isShort ? (
            <button type="button" onClick={open}>
              Show more
            </button>
          ) : (
            <>
              <button type="button" onClick={() => setPart(-1)}>
                Show less
              </button>
              {parts > 1 && (
                <>
                  <button type="button" disabled={part <= 0} onClick={() => setPart(part - 1)}>
                    Previous part
                  </button>
                  <button type="button" disabled={part >= parts - 1} onClick={() => setPart(part + 1)}>
                    Next part
                  </button>
                </>
              )}
            </>
          )}
          <span>
            {from > 0 ? `characters ${count(from + 1)} to ${count(from + shown.length)}` : count(shown.length)} of{' '}
            {count(size)} characters
          </span>
          {!isShort && whole?.chars !== undefined && <span>; the rest is only in the log</span>}
        </p>
      )}
      {!isShort && size <= shown.length && size > short.length && (
        <p class="more">
          <button type="button" onClick={() => setPart(-1)}>
            Show less
          </button>
        </p>
      )}
      {error && <p class="problem">{visible(error)}</p>}
    </div>
  )
}
