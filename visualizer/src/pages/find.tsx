/** Search over the texts of all runs: the newest runs with all words, and the first places in each. */

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { FoundTexts, TextHit } from '../contract'
import { Excerpt } from '../parts/excerpt'
import { scoreText, Tags } from '../parts/listrows'
import { Status, Waiting } from '../parts/small'
import { Line } from '../parts/words'
import { sourceNumber, theSource } from '../state/app'
import { useAsked } from '../state/asked'
import { useKeys } from '../state/keys'
import { go, to } from '../state/route'
import { costWords, moment, percent, plural } from '../text/format'
import { oneLine, visible } from '../text/hostile'
import { conditionOf, filterIn, optionsOf } from './filter'

const AGAIN_MS = 1_000
const TYPING_MS = 200

/** Where a hit is: the page of its run, or the step that has the text. */
export function addressOf(hit: TextHit, words: string): string {
  const isOfRun = hit.kind === 'query' || hit.kind === 'answer' || hit.step === 0 || (hit.kind === 'error' && hit.cell === null)
  return to.hit(hit.run_id, isOfRun ? null : hit.step, hit.index, words)
}

export function placeOf(hit: TextHit, root: string): string {
  const child = hit.run_id === root ? '' : `child run ${oneLine(hit.run_id.slice(-10))}, `
  const step = hit.step === 0 || hit.kind === 'query' || hit.kind === 'answer' ? '' : `step ${hit.step}, `
  const cell = hit.cell === null ? '' : ` of cell ${hit.cell}`
  return `${child}${step}${hit.kind}${cell}`
}

function Found({ found, words }: { found: FoundTexts; words: string }): JSX.Element {
  if (!found.runs.length) {
    return <p class="empty">{found.indexing ? 'Nothing found so far.' : `No text in these runs contains all of “${oneLine(words, 80)}”.`}</p>
  }
  return (
    <ol class="found-runs">
      {found.runs.map(({ run, hits, more }) => (
        <li key={run.run_id}>
          <h2>
            <a href={to.run(run.run_id)}>
              <Line text={run.query} empty={run.run_id} />
            </a>
          </h2>
          <p class="card-facts">
            <Status run={run} />
            <span>{moment(run.started)}</span>
            <Line text={run.model} most={40} />
            <span>{costWords(run.cost_usd)}</span>
            {run.score != null && <span>score {scoreText(run.score)}</span>}
            <Tags run={run} />
          </p>
          {hits.map((hit) => (
            <a key={`${hit.run_id} ${hit.index} ${hit.kind}`} class="hit" href={addressOf(hit, words)}>
              <span class="faint">{placeOf(hit, run.run_id)}</span>
              <Excerpt text={hit.excerpt} words={words} />
            </a>
          ))}
          {more && (
            <a class="faint" href={to.search(run.run_id, words)}>
              All places in this run
            </a>
          )}
        </li>
      ))}
    </ol>
  )
}

export function FindPage({ options }: { options: string }): JSX.Element {
  const filter = filterIn(options)
  const where = conditionOf(filter)
  const field = useRef<HTMLInputElement | null>(null)
  const { value, error, again } = useAsked(
    () => (filter.words.trim() ? theSource().find(filter.words, where) : Promise.resolve(null)),
    `find ${sourceNumber.value} ${filter.words} ${where}`,
  )
  const [last, setLast] = useState<FoundTexts | null>(null)
  useEffect(() => {
    if (value) setLast(value)
    if (!value?.indexing && !value?.problem) return
    const timer = setTimeout(() => void again(), AGAIN_MS)
    return () => clearTimeout(timer)
  }, [value])
  useKeys({ '/': () => field.current?.focus() })
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const type = (words: string): void => {
    clearTimeout(timer.current)
    timer.current = setTimeout(() => go(to.find(optionsOf({ ...filter, words })), true), TYPING_MS)
  }
  const found = value ?? last
  return (
    <div class="list-page find-page">
      <div class="bar">
        <h1>Search all runs</h1>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <input
            ref={field}
            type="search"
            placeholder="Words in queries, answers, code and output  /"
            aria-label="Words in queries, answers, code and output of all runs"
            defaultValue={filter.words}
            onInput={(event) => type(event.currentTarget.value)}
          />
        </form>
        <a href={to.list(optionsOf(filter))}>List of runs</a>
      </div>
      {where && <p class="faint">Only runs with {visible(where)}</p>}
      {found?.indexing && (
        <p class="notice quiet" role="status">
          {found.indexing.files ? `${percent(Math.round(100 * (1 - found.indexing.left / found.indexing.files)))} of ${plural(found.indexing.files, 'file')} are indexed` : 'The runs are being indexed'}
        </p>
      )}
      {found?.problem && <p class="notice">{visible(found.problem)}</p>}
      <div aria-live="polite" class="hidden">
        {value && `${plural(value.runs.length, 'run')} found${value.more ? ', and more' : ''}`}
      </div>
      {error && <Waiting error={error} what="Searching" />}
      {!filter.words.trim() && <p class="empty">Enter words. One text must contain all of them; "quoted words" must be adjacent.</p>}
      {filter.words.trim() && !found && !error && <Waiting error={null} what="Searching" />}
      {filter.words.trim() && found && (
        <>
          <p class="faint">{found.more ? `The newest ${plural(found.runs.length, 'run')} with these words` : plural(found.runs.length, 'run')}</p>
          <Found found={found} words={filter.words} />
        </>
      )}
    </div>
  )
}
