/** Which parts of the context were read, and which were not. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Coverage, Reader } from '../contract'
import { documentAt, gaps, grid, type Piece, readersOf, readShare, segments, shade } from '../layout/coverage'
import { coloursOf, sharp } from '../parts/colour'
import { Waiting } from '../parts/small'
import { useWidth } from '../parts/size'
import { Windowed } from '../parts/windowed'
import { Line, Words } from '../parts/words'
import { sourceNumber, theSource } from '../state/app'
import { useAsked } from '../state/asked'
import { to } from '../state/route'
import { colours } from '../state/theme'
import { count, percent, plural, short } from '../text/format'
import { oneLine } from '../text/hostile'
import { DataCoverageBody } from './datacoverage'

const SIDE = 13
const ROWS = 18
const AROUND_CHARS = 300
const MAX_PART_CHARS = 3_000
const MAX_READERS = 300
const SHADES = ['--read-0', '--read-1', '--read-2', '--read-3', '--read-4'] as const

const READ_WORDS = ['never', 'once', 'twice', '3 or 4 times', '5 times or more'] as const

interface Part {
  readonly start: number
  readonly end: number
}

function paint(canvas: HTMLCanvasElement, pieces: readonly Piece[], columns: number, chosen: number): void {
  const rows = Math.ceil(pieces.length / columns)
  const context = sharp(canvas, columns * SIDE, rows * SIDE)
  if (!context) return
  const inks = coloursOf(canvas.parentElement ?? canvas, [...SHADES, '--focus', '--line'])
  pieces.forEach((piece, at) => {
    const left = (at % columns) * SIDE
    const top = Math.floor(at / columns) * SIDE
    const size = SIDE - 2
    context.fillStyle = inks['--read-0']
    context.fillRect(left, top, size, size)
    if (piece.share > 0) {
      // A piece that was read in part is filled in part, from below: never more than was read.
      const height = Math.max(1.5, size * piece.share)
      context.fillStyle = inks[SHADES[shade(piece.readers)]]
      context.fillRect(left, top + size - height, size, height)
    }
    if (at === chosen) {
      context.strokeStyle = inks['--focus']
      context.lineWidth = 2
      context.strokeRect(left - 0.5, top - 0.5, size + 1, size + 1)
    }
  })
}

interface MapProps {
  readonly coverage: Coverage
  readonly chosen: Part | null
  readonly choose: (part: Part) => void
}

function ContextMap({ coverage, chosen, choose }: MapProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const width = useWidth(box)
  const columns = Math.max(8, Math.floor((width || 320) / SIDE))
  const pieces = useMemo(() => grid(coverage.chars, coverage.spans, columns * ROWS), [coverage, columns])
  const at = chosen ? pieces.findIndex((piece) => piece.start <= chosen.start && chosen.start < piece.end) : -1
  useEffect(() => {
    if (canvas.current && width > 0) paint(canvas.current, pieces, columns, at)
  }, [pieces, columns, at, width, colours.value])
  const show = (number: number): void => {
    const piece = pieces[Math.max(0, Math.min(pieces.length - 1, number))]
    if (piece) choose({ start: piece.start, end: piece.end })
  }
  const pressed = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }
    const by = steps[event.key]
    if (by === undefined && event.key !== 'Home' && event.key !== 'End') return
    event.preventDefault()
    event.stopPropagation()
    show(event.key === 'Home' ? 0 : event.key === 'End' ? pieces.length - 1 : Math.max(0, at) + (by ?? 0))
  }
  const piece = pieces[at]
  const [hovered, setHovered] = useState('')
  const under = (event: MouseEvent): number => {
    const frame = canvas.current?.getBoundingClientRect()
    if (!frame) return -1
    const column = Math.floor((event.clientX - frame.left) / SIDE)
    return column < 0 || column >= columns ? -1 : Math.floor((event.clientY - frame.top) / SIDE) * columns + column
  }
  return (
    <div
      ref={box}
      class="context-map"
      tabIndex={0}
      data-keys=""
      role="application"
      aria-roledescription="map"
      aria-label={`Map of the context. The arrow keys move through it. ${piece ? `Characters ${count(piece.start)} to ${count(piece.end)}, ${percent(100 * piece.share)} read` : ''}`}
      onKeyDown={pressed}
      onMouseMove={(event) => {
        const piece = pieces[under(event)]
        const name = piece && coverage.documents.length > 1 ? documentAt(coverage.documents, piece.start)?.name : undefined
        setHovered(piece ? `${count(piece.start)} to ${count(piece.end)}${name ? ` of ${oneLine(name, 80)}` : ''}: ${percent(100 * piece.share)} read` : '')
      }}
      onClick={(event) => {
        const number = under(event)
        if (pieces[number]) show(number)
      }}
    >
      <canvas ref={canvas} aria-hidden="true" title={hovered} />
      <ul class="legend">
        {READ_WORDS.map((words, number) => (
          <li key={words}>
            <span class="swatch" style={{ background: `var(${SHADES[number]})` }} aria-hidden="true" />
            {words}
          </li>
        ))}
        <li class="faint">one square is {plural((pieces[0]?.end ?? 1) - (pieces[0]?.start ?? 0), 'character')}; a partly read square is partly filled</li>
      </ul>
    </div>
  )
}

/** How a reader came to the text. */
export function readingWords(reader: Reader): string {
  if (reader.kind === 'printed') return `printed by ${reader.cell === null ? 'a cell' : `cell ${reader.cell}`}`
  return reader.kind === 'call' ? 'sent to a call' : 'sent in the first request of the run'
}

export function ReaderLink({ reader, root }: { reader: Reader; root: string }): JSX.Element {
  const where = reader.run_id === root ? '' : `child run ${oneLine(reader.run_id.slice(-10))}, `
  return (
    <a href={to.step(reader.run_id, reader.step, reader.call_id)}>
      {where}step {reader.step}: {readingWords(reader)}
    </a>
  )
}

/** The text with what was read shaded. Places are in characters as Python counts them, not in UTF-16. */
function Shown({ coverage, text, shown, part }: { coverage: Coverage; text: string; shown: Part; part: Part }): JSX.Element {
  const chars = useMemo(() => Array.from(text), [text])
  const slice = (start: number, end: number): string => chars.slice(start - shown.start, end - shown.start).join('')
  const cuts = [shown.start, part.start, part.end, shown.end]
  return (
    <pre class="context-text" tabIndex={0} aria-label="The text, with some of what surrounds it">
      {[0, 1, 2].map((which) => (
        <span key={which} class={which === 1 ? 'inside' : 'around'}>
          {segments(coverage.spans, cuts[which]!, cuts[which + 1]!).map((segment) => (
            <span key={segment.start} class={`read read-${shade(segment.readers)}`}>
              <Words text={slice(segment.start, segment.end)} />
            </span>
          ))}
        </span>
      ))}
    </pre>
  )
}

function Inspect({ runId, coverage, part }: { runId: string; coverage: Coverage; part: Part }): JSX.Element {
  const until = Math.min(part.end, part.start + MAX_PART_CHARS)
  const shown = { start: Math.max(0, part.start - AROUND_CHARS), end: Math.min(coverage.chars, until + AROUND_CHARS) }
  const { value, error } = useAsked(() => theSource().context(runId, shown.start, shown.end), `context ${runId} ${part.start} ${part.end}`)
  const readers = readersOf(coverage.spans, part.start, part.end)
  const name = coverage.documents.length > 1 ? documentAt(coverage.documents, part.start)?.name : undefined
  return (
    <section class="inspect" aria-live="polite">
      <h2>
        Characters {count(part.start)} to {count(part.end)}
        {name !== undefined && (
          <>
            {' '}
            of <Line text={name} most={120} />
          </>
        )}
      </h2>
      <p>
        {readers.length ? `${percent(100 * readShare(coverage.spans, part.start, part.end))} of it was read, by ${plural(readers.length, 'reader')}:` : 'This part was never read.'}
      </p>
      {readers.length > 0 && (
        <ul class="readers">
          {readers.slice(0, MAX_READERS).map((number) => {
            const reader = coverage.readers[number]
            return reader ? (
              <li key={number}>
                <ReaderLink reader={reader} root={runId} />
              </li>
            ) : null
          })}
          {readers.length > MAX_READERS && <li class="faint">and {count(readers.length - MAX_READERS)} more</li>}
        </ul>
      )}
      {value === null ? (
        <Waiting error={error} what="Loading the context" />
      ) : (
        <>
          <Shown coverage={coverage} text={value} shown={shown} part={{ start: part.start, end: until }} />
          {until < part.end && (
            <p class="faint">
              The first {count(until - part.start)} of {count(part.end - part.start)} characters; what was read is shaded.
            </p>
          )}
        </>
      )}
    </section>
  )
}

function Documents({ coverage, choose }: { coverage: Coverage; choose: (part: Part) => void }): JSX.Element | null {
  const shares = useMemo(
    () => coverage.documents.map((each) => readShare(coverage.spans, each.start, each.end)),
    [coverage],
  )
  if (coverage.documents.length < 2) return null
  return (
    <section>
      <h2>{plural(coverage.documents.length, 'document')}</h2>
      <Windowed
        class="documents"
        label="Documents and how much of each was read"
        count={coverage.documents.length}
        rowHeight={30}
        row={(at) => {
          const each = coverage.documents[at]!
          const share = shares[at]!
          return (
            <button type="button" class="plain document" onClick={() => choose({ start: each.start, end: Math.max(each.start + 1, each.end) })}>
              <Line text={each.name} most={120} empty={`document ${at + 1}`} />
              <span class="meter" aria-hidden="true">
                <span style={{ width: `${100 * share}%` }} />
              </span>
              <span class="number">{percent(100 * share)} read</span>
            </button>
          )
        }}
      />
    </section>
  )
}

function Gaps({ coverage, choose }: { coverage: Coverage; choose: (part: Part) => void }): JSX.Element | null {
  const longest = useMemo(() => gaps(coverage, 8), [coverage])
  if (!longest.length) return null
  return (
    <section>
      <h2>The longest parts never read</h2>
      <ul class="gaps">
        {longest.map((gap) => (
          <li key={gap.start}>
            <button type="button" class="link" onClick={() => choose(gap)}>
              {count(gap.start)} to {count(gap.end)}
            </button>{' '}
            <span class="faint">{short(gap.end - gap.start)} characters</span>
          </li>
        ))}
      </ul>
    </section>
  )
}

export function CoverageBody({ runId }: { runId: string }): JSX.Element {
  const [done, setDone] = useState(0)
  const { value, error, again } = useAsked(() => theSource().coverage(runId, setDone), `coverage ${sourceNumber.value} ${runId}`)
  const [chosen, setChosen] = useState<Part | null>(null)
  if (!value) return <Waiting error={error} what={`Comparing outputs and prompts with the context${done > 0 ? `: ${percent(Math.floor(100 * done))}` : ''}`} />
  if (!value.available) return <p class="empty">{oneLine(value.why_not ?? 'The context of this run is not available.', 600)}</p>
  if (value.data) return <DataCoverageBody data={value.data} again={() => void again()} />
  return (
    <div class="coverage-page">
      <header class="coverage-head">
        <p class="big">{percent(value.unread_percent)}</p>
        <p>
          <strong>of the context was never read</strong>
          <br />
          <span class="faint">
            {count(value.chars)} characters{value.documents.length > 1 ? ` in ${plural(value.documents.length, 'document')}` : ''},{' '}
            {plural(value.readers.length, 'reader')}.{' '}
            {value.exact ? 'Found by matching every output and every prompt with the context.' : 'An estimate: not every output could be matched with the context.'}{' '}
            Text that a cell processed without printing it or passing it on does not count.
          </span>
        </p>
        <span class="push" />
        <button type="button" onClick={() => void again()}>
          Refresh
        </button>
      </header>
      <ContextMap coverage={value} chosen={chosen} choose={setChosen} />
      {chosen ? <Inspect runId={runId} coverage={value} part={chosen} /> : <p class="faint">Click a square, or move through the map with the arrow keys, to see its text and what read it.</p>}
      <div class="two">
        <Gaps coverage={value} choose={setChosen} />
        <Documents coverage={value} choose={setChosen} />
      </div>
    </div>
  )
}
