/** A benchmark or a batch: scores and cost by task, size and method, and samples with their answers beside gold. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { ResultFigures, ResultList, ResultSample } from '../contract'
import { figurePairs, filtered, type ResultFilter, type SamplePair, samplePairs } from '../layout/results'
import { LongText } from '../parts/longtext'
import { Waiting } from '../parts/small'
import { useNarrow, Windowed } from '../parts/windowed'
import { Line } from '../parts/words'
import { connection, source, sourceNumber, theSource, viewer } from '../state/app'
import { throttled, useAsked } from '../state/asked'
import { useKeys } from '../state/keys'
import { go, to } from '../state/route'
import { costWords, count, dollars, percent, plural, seconds, short } from '../text/format'
import { oneLine, visible } from '../text/hostile'

const ROW_HEIGHT = 34
const LINE_HEIGHT = 21
const LETTERS = ['A', 'B'] as const
const ONLY = { '': 'all', wrong: 'only wrong', failed: 'only failed', differ: 'only those that differ' } as const

function score(value: number | null | undefined): string {
  return value == null ? '–' : percent(Math.round(value * 10) / 10)
}

function signed(value: number, format: (value: number) => string): string {
  return value === 0 ? '0' : `${value > 0 ? '+' : '−'}${format(Math.abs(value))}`
}

function difference(one: number | null | undefined, other: number | null | undefined, format: (value: number) => string): string {
  return one == null || other == null ? '' : signed(other - one, format)
}

function Folders({ results }: { results: ResultList }): JSX.Element {
  return (
    <ul class="folders">
      {results.folders.map((folder, at) => (
        <li key={at}>
          {results.folders.length > 1 && <strong>{LETTERS[at]} </strong>}
          <Line text={folder.name} most={80} />
          {folder.model && (
            <span class="faint">
              {' '}
              {oneLine(folder.model, 60)}
              {folder.sub_model && folder.sub_model !== folder.model ? ` + ${oneLine(folder.sub_model, 60)}` : ''}
            </span>
          )}
          <span class="faint"> {costWords(folder.cost_usd)}</span>
          {folder.live && (
            <span class="going">
              <span class="pulse" aria-hidden="true" />
              live
            </span>
          )}
        </li>
      ))}
    </ul>
  )
}

function FigureCells({ figures }: { figures: ResultFigures | null }): JSX.Element {
  if (!figures) return <td colSpan={4}>–</td>
  const { low, high } = figures
  const interval = low != null && high != null && low !== high ? ` (${Math.round(low)}–${Math.round(high)})` : ''
  const notes = [figures.failed && `${figures.failed} failed`, figures.impossible && `${figures.impossible} impossible`].filter(Boolean).join(', ')
  return (
    <>
      <td>
        {count(figures.samples)}
        {notes && <span class="faint"> {notes}</span>}
      </td>
      <td>
        <span class="score-meter" aria-hidden="true">
          <span style={{ width: `${Math.max(0, Math.min(100, figures.score ?? 0))}%` }} />
        </span>
        {score(figures.score)}
        <span class="faint">{interval}</span>
      </td>
      <td>{dollars(figures.cost_usd)}</td>
      <td>{short(figures.tokens)}</td>
    </>
  )
}

function Figures({ results }: { results: ResultList }): JSX.Element {
  const pairs = useMemo(() => figurePairs(results), [results])
  const isTwo = results.folders.length > 1
  const heads = ['n', 'score', 'cost', 'tokens']
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Scores and cost by task, size and method">
      <table class="numbers figures">
        <thead>
          <tr>
            <th scope="col">task</th>
            <th scope="col">size</th>
            <th scope="col">method</th>
            {results.folders.map((_, at) =>
              heads.map((head) => (
                <th key={`${at} ${head}`} scope="col">
                  {isTwo ? `${LETTERS[at]} ` : ''}
                  {head}
                </th>
              )),
            )}
            {isTwo && <th scope="col">B − A score</th>}
            {isTwo && <th scope="col">B − A cost</th>}
          </tr>
        </thead>
        <tbody>
          {pairs.map(({ key, both }) => {
            const some = both.find((each) => each !== null)!
            return (
              <tr key={key}>
                <th scope="row">
                  <Line text={some.task} most={60} />
                </th>
                <td>{some.size_words || '–'}</td>
                <td>{oneLine(some.method, 30) || '–'}</td>
                {both.map((each, at) => (
                  <FigureCells key={at} figures={each} />
                ))}
                {isTwo && <td>{difference(both[0]?.score, both[1]?.score, (value) => `${Math.round(value * 10) / 10} points`)}</td>}
                {isTwo && <td>{difference(both[0]?.cost_usd, both[1]?.cost_usd, dollars)}</td>}
              </tr>
            )
          })}
        </tbody>
      </table>
    </div>
  )
}

function sampleWord(sample: ResultSample | null): string {
  if (!sample) return '–'
  if (sample.score === null) return oneLine(sample.status, 20)
  return sample.score >= 1 ? '✓ 100 %' : sample.score <= 0 ? '✕ 0 %' : percent(Math.round(sample.score * 1000) / 10)
}

function scoreClass(sample: ResultSample | null): string {
  if (!sample || sample.score === null) return sample?.status === 'failed' ? 'score bad' : 'score'
  return sample.score >= 1 ? 'score good' : 'score bad'
}

function Detail({ pair, results }: { pair: SamplePair; results: ResultList }): JSX.Element {
  const some = pair.both.find((each) => each !== null)!
  return (
    <section class="inspect sample-detail" aria-live="polite" aria-label="Selected sample">
      <h3>
        <Line text={`${some.task} ${some.size_words} ${some.method} ${some.name}`} most={160} />
      </h3>
      {pair.both.map((sample, at) => (
        <div key={at} class="sample-answer">
          <h4>
            {results.folders.length > 1 ? `${LETTERS[at]}: ` : ''}answer <span class={scoreClass(sample)}>{sampleWord(sample)}</span>
            {sample?.run_id && (
              <>
                {' '}
                <a href={to.run(sample.run_id)}>open the run</a>
              </>
            )}
            {sample && (
              <span class="faint">
                {' '}
                {costWords(sample.cost_usd)}, {short(sample.tokens)} tokens, {seconds(sample.seconds)}
              </span>
            )}
          </h4>
          {sample?.error && <p class="problem">{visible(sample.error)}</p>}
          {sample?.answer != null ? <LongText text={sample.answer} label="Answer" /> : <p class="faint">No answer.</p>}
        </div>
      ))}
      <div class="sample-answer">
        <h4>gold</h4>
        {some.gold != null ? <LongText text={some.gold} label="Gold" /> : <p class="faint">These results do not contain the right answer.</p>}
      </div>
    </section>
  )
}

function Samples({ pairs, results, chosen, choose }: { pairs: readonly SamplePair[]; results: ResultList; chosen: number; choose: (at: number) => void }): JSX.Element {
  const narrow = useNarrow()
  useKeys({
    j: () => choose(Math.min(pairs.length - 1, chosen + 1)),
    k: () => choose(Math.max(0, chosen - 1)),
    o: () => {
      const run = pairs[chosen]?.both.find((each) => each?.run_id)
      if (run) go(to.run(run.run_id))
    },
  })
  return (
    <Windowed
      class="samples"
      label="Samples. j and k move through them, o opens the run"
      count={pairs.length}
      rowHeight={narrow ? LINE_HEIGHT * (2 + results.folders.length) + 12 : ROW_HEIGHT}
      active={chosen}
      idOf={(at) => `sample-${at}`}
      onKeyDown={(event) => {
        const next = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: pairs.length - 1 }[event.key]
        if (next === undefined) return
        event.preventDefault()
        event.stopPropagation()
        choose(Math.max(0, Math.min(pairs.length - 1, next)))
      }}
      row={(at) => {
        const pair = pairs[at]!
        const some = pair.both.find((each) => each !== null)!
        return (
          <div class={`sample-row ${at === chosen ? 'active' : ''}`} onClick={() => choose(at)}>
            <span class="sample-name">
              <Line text={`${some.task} ${some.size_words} ${some.method} ${some.name}`} most={90} />
            </span>
            {pair.both.map((sample, side) => (
              <span key={side} class="sample-side">
                <span class={scoreClass(sample)}>
                  {results.folders.length > 1 ? `${LETTERS[side]} ` : ''}
                  {sampleWord(sample)}
                </span>
                <Line text={sample?.answer ?? sample?.error ?? ''} most={120} empty="(no answer)" />
              </span>
            ))}
            <span class="sample-gold">
              <span class="faint">gold </span>
              <Line text={some.gold ?? ''} most={120} empty="unknown" />
            </span>
            {!narrow && <span class="number">{costWords(some.cost_usd)}</span>}
          </div>
        )
      }}
    />
  )
}

function Choice({ label, value, values, change }: { label: string; value: string; values: readonly (readonly [string, string])[]; change: (value: string) => void }): JSX.Element | null {
  if (values.length < 2 && !value) return null
  return (
    <label>
      {label}{' '}
      <select value={value} onChange={(event) => change(event.currentTarget.value)}>
        <option value="">all</option>
        {values.slice(0, 200).map(([name, words]) => (
          <option key={name} value={name}>
            {oneLine(words, 60)}
          </option>
        ))}
      </select>
    </label>
  )
}

function distinct(all: readonly (readonly [string, string])[]): (readonly [string, string])[] {
  return [...new Map(all.filter(([name]) => name)).entries()]
}

export function ResultsPage({ filter: given }: { filter: Readonly<Record<string, string>> }): JSX.Element {
  const { value, error, again } = useAsked(() => theSource().results(), `results ${sourceNumber.value}`)
  const [chosen, setChosen] = useState(-1)
  useEffect(() => {
    const reload = throttled(again, 1_000)
    const stop = source.value?.watchRuns(
      () => reload.want(),
      (state) => {
        connection.value = state
      },
    )
    return () => {
      stop?.()
      reload.stop()
      connection.value = 'none'
    }
  }, [sourceNumber.value])
  const filter: ResultFilter = { task: given['task'] ?? '', size: given['size'] ?? '', method: given['method'] ?? '', only: given['only'] ?? '' }
  const pairs = useMemo(() => (value ? samplePairs(value) : []), [value])
  const shown = useMemo(() => filtered(pairs, filter), [pairs, JSON.stringify(filter)])
  if (!value) return <Waiting error={error} what="Loading the results" />
  const change = (part: Partial<ResultFilter>): void => {
    setChosen(-1)
    go(to.results({ ...filter, ...part }), true)
  }
  const samples = value.samples
  const pair = shown[chosen]
  const isTwo = value.folders.length > 1
  return (
    <div class="results-page">
      <h1>
        {value.kind === 'bench' ? 'Benchmark' : 'Batch'}
        <span class="faint"> {visible(viewer.value?.title ?? '')}</span>
      </h1>
      <Folders results={value} />
      {value.figures.length ? <Figures results={value} /> : <p class="empty">No results yet. They appear here as they are written.</p>}
      <div class="bar">
        <h2>Samples</h2>
        <span class="faint" role="status">
          {shown.length === pairs.length ? plural(pairs.length, 'sample') : `${count(shown.length)} of ${plural(pairs.length, 'sample')}`}
          {value.left_out ? `; ${count(value.left_out)} more are not listed` : ''}
        </span>
        <span class="push" />
        <Choice label="task" value={filter.task} values={distinct(samples.map((each) => [each.task, each.task]))} change={(task) => change({ task })} />
        <Choice label="size" value={filter.size} values={distinct(samples.filter((each) => each.size > 0).map((each) => [String(each.size), each.size_words]))} change={(size) => change({ size })} />
        <Choice label="method" value={filter.method} values={distinct(samples.map((each) => [each.method, each.method]))} change={(method) => change({ method })} />
        <label>
          show{' '}
          <select value={filter.only} onChange={(event) => change({ only: event.currentTarget.value })}>
            {Object.entries(ONLY)
              .filter(([name]) => isTwo || name !== 'differ')
              .map(([name, words]) => (
                <option key={name} value={name}>
                  {words}
                </option>
              ))}
          </select>
        </label>
      </div>
      {shown.length ? <Samples pairs={shown} results={value} chosen={chosen} choose={setChosen} /> : <p class="empty">No samples match this filter.</p>}
      {pair && <Detail pair={pair} results={value} />}
    </div>
  )
}
