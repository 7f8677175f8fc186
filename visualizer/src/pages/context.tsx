/** The context itself: find words, jump to a line, and see who read it. */

import { Fragment, type JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { ContextHit, ContextHits, ContextPage, ContextRow, Coverage } from '../contract'
import { readersOf, segments, shade } from '../layout/coverage'
import { Waiting } from '../parts/small'
import { Line, Words } from '../parts/words'
import { sourceNumber, theSource } from '../state/app'
import { useAsked, wordsOf } from '../state/asked'
import { useKeys } from '../state/keys'
import { type ContextPlace, go, to } from '../state/route'
import { count, plural } from '../text/format'
import { oneLine, visible } from '../text/hostile'
import { ReaderLink } from './coverage'

const ABOVE = 8
const MAX_READERS = 200

interface Part {
  readonly start: number
  readonly end: number
}

interface Shown {
  readonly page: ContextPage
  /** What the address means: it is marked. */
  readonly meant: Part | null
}

async function shownAt(runId: string, place: ContextPlace): Promise<Shown> {
  const source = theSource()
  const meant =
    place.citation !== null
      ? await source.citation(runId, place.citation)
      : place.at !== null && place.end !== null
        ? { start: place.at, end: Math.max(place.at, place.end) }
        : null
  const at = meant?.start ?? place.at ?? 0
  return { page: await source.contextRows(runId, { at, above: meant ? ABOVE : 0 }), meant }
}

interface Piece {
  readonly start: number
  readonly end: number
  readonly readers: number
  readonly isMeant: boolean
}

/** A row cut where its readers change and where what is meant begins and ends. */
export function pieces(row: Part, coverage: Coverage | null, meant: Part | null): Piece[] {
  const parts = segments(coverage?.spans ?? [], row.start, row.end)
  const found: Piece[] = []
  for (const { start, end, readers } of parts) {
    const cuts = [start, ...[meant?.start, meant?.end].filter((cut): cut is number => cut !== undefined && start < cut && cut < end), end]
    for (let at = 1; at < cuts.length; at += 1) {
      const [from, until] = [cuts[at - 1]!, cuts[at]!]
      found.push({ start: from, end: until, readers, isMeant: meant !== null && meant.start <= from && until <= meant.end })
    }
  }
  return found
}

interface RowProps {
  readonly row: ContextRow
  readonly coverage: Coverage | null
  readonly meant: Part | null
  readonly isChosen: boolean
  readonly choose: () => void
}

function Row({ row, coverage, meant, isChosen, choose }: RowProps): JSX.Element {
  const chars = useMemo(() => Array.from(row.text), [row.text])
  const readers = coverage?.available ? readersOf(coverage.spans, row.start, Math.max(row.end, row.start + 1)).length : null
  const words = readers === null ? '' : readers ? `, ${plural(readers, 'reader')}` : ', never read'
  const isFirst = row.column === 0
  return (
    <li class={`context-row ${isChosen ? 'chosen-row' : ''}`}>
      <button
        type="button"
        class="plain line-number"
        aria-pressed={isChosen}
        aria-label={`What read line ${row.line}${isFirst ? '' : ` from character ${row.column + 1}`}${words}`}
        onClick={choose}
      >
        {isFirst ? count(row.line) : `+${count(row.column)}`}
      </button>
      <span class="row-text" dir="auto">
        {pieces(row, coverage, meant).map((piece) => {
          const text = <Words text={chars.slice(piece.start - row.start, piece.end - row.start).join('')} />
          return (
            <span key={piece.start} class={`read read-${shade(piece.readers)}`}>
              {piece.isMeant ? <mark>{text}</mark> : text}
            </span>
          )
        })}
      </span>
    </li>
  )
}

function Readers({ runId, coverage, row }: { runId: string; coverage: Coverage | null; row: ContextRow }): JSX.Element {
  const numbers = coverage ? readersOf(coverage.spans, row.start, Math.max(row.end, row.start + 1)) : []
  return (
    <section class="inspect line-readers" aria-live="polite">
      <h2>
        What read line {count(row.line)}
        {row.column ? ` from character ${count(row.column + 1)}` : ''}
      </h2>
      {!coverage ? (
        <p class="faint">Comparing outputs and prompts with the context…</p>
      ) : !coverage.available ? (
        <p>{oneLine(coverage.why_not ?? 'What read it is unknown.', 400)}</p>
      ) : numbers.length ? (
        <>
          <ul class="readers">
            {numbers.slice(0, MAX_READERS).map((number) => {
              const reader = coverage.readers[number]
              return reader ? (
                <li key={number}>
                  <ReaderLink reader={reader} root={runId} />
                </li>
              ) : null
            })}
          </ul>
          {numbers.length > MAX_READERS && <p class="faint">and {count(numbers.length - MAX_READERS)} more</p>}
          {!coverage.exact && <p class="faint">An estimate: not every output could be matched with the context.</p>}
        </>
      ) : (
        <p>No cell printed this line, and no call was sent it.</p>
      )}
    </section>
  )
}

interface FindProps {
  readonly runId: string
  readonly names: readonly string[]
  readonly isOne: boolean
}

/** Finds words and lists their places; n and p go through them. */
function Find({ runId, names, isOne }: FindProps): JSX.Element {
  const field = useRef<HTMLInputElement>(null)
  const [found, setFound] = useState<(ContextHits & { words: string }) | null>(null)
  const [at, setAt] = useState(-1)
  const [problem, setProblem] = useState('')
  const [busy, setBusy] = useState(false)
  const show = (hit: ContextHit): void => go(to.context(runId, { at: hit.start, end: hit.end }))
  const find = async (words: string, from: number): Promise<void> => {
    setBusy(true)
    setProblem('')
    try {
      const more = await theSource().contextFind(runId, words, from)
      const before = from > 0 ? (found?.hits ?? []) : []
      const hits = [...before, ...more.hits]
      setFound({ hits, next: more.next, words })
      if (from === 0) setAt(hits.length ? 0 : -1)
      if (from === 0 && hits[0]) show(hits[0])
    } catch (error) {
      setProblem(wordsOf(error))
    }
    setBusy(false)
  }
  const step = (by: number): void => {
    const hits = found?.hits ?? []
    const next = at + by
    if (next < 0 || next >= hits.length) return
    setAt(next)
    show(hits[next]!)
  }
  useKeys({ n: () => step(1), p: () => step(-1), s: () => field.current?.focus() })
  return (
    <div class="context-find">
      <form
        role="search"
        onSubmit={(event) => {
          event.preventDefault()
          const words = field.current?.value ?? ''
          if (words) void find(words, 0)
          field.current?.blur()
        }}
      >
        <input ref={field} type="search" placeholder="Find in the context  s" aria-label="Find in the context" maxLength={1000} />
        <button type="submit" disabled={busy}>
          Find
        </button>
        <button type="button" disabled={at <= 0} onClick={() => step(-1)} aria-label="Previous place (p)">
          ↑
        </button>
        <button type="button" disabled={!found || at >= found.hits.length - 1} onClick={() => step(1)} aria-label="Next place (n)">
          ↓
        </button>
        <span class="faint" role="status">
          {busy ? 'Searching…' : found ? `${found.hits.length ? `${count(at + 1)} of ` : ''}${count(found.hits.length)}${found.next === null ? '' : ' or more'}` : ''}
        </span>
      </form>
      {problem && <p class="problem">{visible(problem)}</p>}
      {found && found.hits.length > 0 && (
        <ol class="places" aria-label="Places">
          {found.hits.slice(0, 500).map((hit, number) => (
            <li key={hit.start}>
              <button
                type="button"
                class="link"
                aria-current={number === at ? 'true' : undefined}
                onClick={() => {
                  setAt(number)
                  show(hit)
                }}
              >
                {isOne ? '' : `${oneLine(names[hit.document] ?? `document ${hit.document + 1}`, 40)}: `}line {count(hit.line)}
              </button>{' '}
              <Line text={hit.excerpt} most={160} />
            </li>
          ))}
        </ol>
      )}
      {found && found.next !== null && (
        <button type="button" disabled={busy} onClick={() => void find(found.words, found.next ?? 0)}>
          Continue searching
        </button>
      )}
    </div>
  )
}

function Jump({ runId, page }: { runId: string; page: ContextPage }): JSX.Element {
  const [document, setDocument] = useState(page.rows[0]?.document ?? 0)
  const [problem, setProblem] = useState('')
  const line = useRef<HTMLInputElement>(null)
  useKeys({ ':': () => line.current?.focus() })
  const jump = async (): Promise<void> => {
    const number = Math.floor(Number(line.current?.value))
    if (!(number >= 1)) return
    try {
      const found = await theSource().contextRows(runId, { document, line: number })
      const row = found.rows[0]
      setProblem('')
      if (row) go(to.context(runId, { at: row.start, end: Math.max(row.end, row.start + 1) }))
    } catch (error) {
      setProblem(wordsOf(error))
    }
  }
  return (
    <form
      class="jump"
      onSubmit={(event) => {
        event.preventDefault()
        void jump()
        line.current?.blur()
      }}
    >
      {page.documents > 1 && (
        <select aria-label="Document" value={document} onChange={(event) => setDocument(Number(event.currentTarget.value))}>
          {page.names.map((name, number) => (
            <option key={number} value={number}>
              {oneLine(name, 60) || `document ${number + 1}`}
            </option>
          ))}
        </select>
      )}
      <input ref={line} class="line-field" type="number" min={1} step={1} aria-label="Line to jump to" placeholder="line  :" />
      <button type="submit">Jump</button>
      {problem && <span class="problem">{visible(problem)}</span>}
    </form>
  )
}

export function ContextBody({ runId, place }: { runId: string; place: ContextPlace }): JSX.Element {
  const key = `${sourceNumber.value} ${runId}`
  const { value, error } = useAsked(() => shownAt(runId, place), `lines ${key} ${JSON.stringify(place)}`)
  const { value: coverage } = useAsked(() => theSource().coverage(runId), `coverage ${key}`)
  const [last, setLast] = useState<Shown | null>(null)
  const [chosen, setChosen] = useState<number | null>(null)
  const box = useRef<HTMLDivElement>(null)
  // While another part is loaded, the last one stays, so that the fields keep what was typed.
  const shown = value ?? last
  useEffect(() => {
    if (!value) return
    setLast(value)
    const row = value.meant && value.page.rows.find((each) => each.start <= value.meant!.start && value.meant!.start <= each.end)
    setChosen(row ? row.start : null)
  }, [value])
  useEffect(() => {
    const marked = box.current?.querySelector('mark, .chosen-row')
    if (marked && value?.meant) marked.scrollIntoView({ block: 'center' })
    else if (value) box.current?.scrollTo(0, 0)
  }, [value])
  if (!shown) return error ? <p class="empty">{oneLine(error, 600)}</p> : <Waiting error={null} what="Loading the context" />
  const { page, meant } = shown
  const row = page.rows.find((each) => each.start === chosen)
  const move = (at: number | null): void => {
    if (at !== null) go(to.context(runId, { at }))
  }
  return (
    <div class="context-page">
      <div class="bar">
        <h2>Context</h2>
        <span class="faint">
          {plural(page.lines, 'line')}, {plural(page.chars, 'character')}
          {page.documents > 1 ? ` in ${plural(page.documents, 'document')}` : ''}
        </span>
        <span class="push" />
        <Jump runId={runId} page={page} />
      </div>
      <Find runId={runId} names={page.names} isOne={page.documents < 2} />
      {error && <p class="problem">{visible(error)}</p>}
      <div class="context-columns">
        <div class="context-lines" ref={box} tabIndex={0} role="region" aria-label="Text of the context">
          {page.rows.length === 0 && <p class="empty">The context is empty.</p>}
          <ul>
            {page.rows.map((each, at) => (
              <Fragment key={each.start}>
                {page.documents > 1 && each.column === 0 && each.line === 1 && each.document !== page.rows[at - 1]?.document && (
                  <li class="document-name">
                    <Line text={page.names[each.document] ?? `document ${each.document + 1}`} most={200} />
                  </li>
                )}
                <Row row={each} coverage={coverage} meant={meant} isChosen={each.start === chosen} choose={() => setChosen(each.start === chosen ? null : each.start)} />
              </Fragment>
            ))}
          </ul>
        </div>
        {row ? <Readers runId={runId} coverage={coverage} row={row} /> : <p class="faint line-readers">Click a line number to see which cells printed it and which calls were sent it. Text that was read is shaded.</p>}
      </div>
      <p class="pager">
        <button type="button" disabled={page.before === null} onClick={() => move(page.before)}>
          Previous lines
        </button>
        <button type="button" disabled={page.after === null} onClick={() => move(page.after)}>
          Next lines
        </button>
      </p>
    </div>
  )
}
