/** All runs: filter them, sort by any column, select two to compare. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Outline } from '../contract'
import { Badge, standing, Status, Waiting } from '../parts/small'
import { useNarrow, Windowed } from '../parts/windowed'
import { Line } from '../parts/words'
import { connection, source, sourceNumber, theSource, viewer } from '../state/app'
import { throttled, useAsked } from '../state/asked'
import { useKeys } from '../state/keys'
import { go, to } from '../state/route'
import { count, dollars, moment, percent, plural, seconds, short } from '../text/format'
import { oneLine, visible } from '../text/hostile'
import { arranged, COLUMNS, type Column, NO_FILTER, type Filter } from './arranged'

const ROW_HEIGHT = 34
const NARROW_ROW_HEIGHT = 66

function Picked({ run, picked, toggle }: { run: Outline; picked: boolean; toggle: () => void }): JSX.Element {
  return (
    <input
      type="checkbox"
      checked={picked}
      onChange={toggle}
      aria-label={`Select for comparison: ${oneLine(run.query, 60) || oneLine(run.run_id, 60)}`}
    />
  )
}

interface RowProps {
  readonly run: Outline
  readonly isActive: boolean
  readonly picked: boolean
  readonly toggle: () => void
}

function WideRow({ run, isActive, picked, toggle }: RowProps): JSX.Element {
  return (
    <div class={`run-row ${isActive ? 'active' : ''}`} role="row" aria-selected={isActive} id={`row-${run.run_id}`}>
      <span role="cell" class="pick">
        <Picked run={run} picked={picked} toggle={toggle} />
      </span>
      <span role="cell">
        <Status run={run} />
      </span>
      <span role="cell" class="query">
        <a href={to.run(run.run_id)}>
          <Line text={run.query} empty={run.run_id} />
        </a>
        {run.note !== undefined && <Badge kind="quiet">{oneLine(run.note, 80)}</Badge>}
        {run.attempts > 1 && <Badge kind="quiet" title="How many times the run was started">{`attempt ${run.attempts}`}</Badge>}
      </span>
      <span role="cell" class="model">
        <Line text={run.model} most={60} />
      </span>
      <span role="cell" class="number date">{moment(run.started)}</span>
      <span role="cell" class="number">{count(run.steps)}</span>
      <span role="cell" class="number">{short(run.all_calls)}</span>
      <span role="cell" class="number">{run.deepest}</span>
      <span role="cell" class="number">{short(run.tokens)}</span>
      <span role="cell" class="number">{dollars(run.cost_usd)}</span>
      <span role="cell" class="number">{seconds(run.seconds)}</span>
    </div>
  )
}

function NarrowRow({ run, isActive, picked, toggle }: RowProps): JSX.Element {
  return (
    <div class={`run-card ${isActive ? 'active' : ''}`} role="row" aria-selected={isActive} id={`row-${run.run_id}`}>
      <span role="cell" class="pick">
        <Picked run={run} picked={picked} toggle={toggle} />
      </span>
      <span role="cell" class="card">
        <a href={to.run(run.run_id)}>
          <Line text={run.query} empty={run.run_id} />
        </a>
        <span class="card-facts">
          <Status run={run} />
          {run.note !== undefined && <Badge kind="quiet">{oneLine(run.note, 80)}</Badge>}
          <span>{plural(run.steps, 'step')}</span>
          <span>{plural(run.all_calls, 'call')}</span>
          <span>{dollars(run.cost_usd)}</span>
          <span>{seconds(run.seconds)}</span>
        </span>
      </span>
    </div>
  )
}

function Head({ column, descending, sort }: { column: Column; descending: boolean; sort: (column: Column) => void }): JSX.Element {
  return (
    <div class="run-row head" role="row">
      <span role="columnheader" class="pick">
        <span class="hidden">selected</span>
      </span>
      {COLUMNS.map(({ name, words, isNumber }) => (
        <span
          key={name}
          role="columnheader"
          class={isNumber ? 'number' : ''}
          aria-sort={column === name ? (descending ? 'descending' : 'ascending') : 'none'}
        >
          <button type="button" class="plain" onClick={() => sort(name)}>
            {words}
            <span aria-hidden="true" class="arrow">
              {column === name ? (descending ? ' ↓' : ' ↑') : ''}
            </span>
          </button>
        </span>
      ))}
    </div>
  )
}

interface FiltersProps {
  readonly filter: Filter
  readonly change: (filter: Filter) => void
  readonly models: readonly string[]
  readonly field: { current: HTMLInputElement | null }
  readonly sort: (column: Column) => void
  readonly column: Column
  readonly narrow: boolean
}

function Filters({ filter, change, models, field, sort, column, narrow }: FiltersProps): JSX.Element {
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <input
        ref={field}
        type="search"
        placeholder="Filter runs  /"
        aria-label="Filter runs by words in the query, answer, model or id"
        value={filter.words}
        onInput={(event) => change({ ...filter, words: event.currentTarget.value })}
      />
      <select aria-label="Status" value={filter.standing} onChange={(event) => change({ ...filter, standing: event.currentTarget.value })}>
        <option value="">any status</option>
        {['running', 'answered', 'passages', 'limit', 'failed', 'cancelled', 'killed'].map((word) => (
          <option key={word} value={word}>
            {word}
          </option>
        ))}
      </select>
      <select aria-label="Model" value={filter.model} onChange={(event) => change({ ...filter, model: event.currentTarget.value })}>
        <option value="">any model</option>
        {models.map((model) => (
          <option key={model} value={model}>
            {oneLine(model, 40)}
          </option>
        ))}
      </select>
      {narrow && (
        <select aria-label="Sort by" value={column} onChange={(event) => sort(event.currentTarget.value as Column)}>
          {COLUMNS.map(({ name, words }) => (
            <option key={name} value={name}>
              by {words}
            </option>
          ))}
        </select>
      )}
    </form>
  )
}

function emptyWords(isReading: boolean): string {
  if (isReading) return ''
  return viewer.value?.live ? 'No runs yet. They will appear here as soon as they start.' : 'This file contains no runs.'
}

export function ListPage(): JSX.Element {
  const { value, error, again } = useAsked(() => theSource().runs(), `runs ${sourceNumber.value}`)
  const [filter, setFilter] = useState<Filter>(NO_FILTER)
  const [column, setColumn] = useState<Column>('started')
  const [descending, setDescending] = useState(true)
  const [active, setActive] = useState(0)
  const [picked, setPicked] = useState<readonly string[]>([])
  const field = useRef<HTMLInputElement | null>(null)
  const narrow = useNarrow()
  useEffect(() => {
    if (!viewer.value?.live) return
    const reload = throttled(again, 500)
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
  const models = useMemo(() => [...new Set(value?.runs.map((run) => run.model) ?? [])].sort().slice(0, 200), [value])
  const runs = useMemo(() => arranged(value?.runs ?? [], filter, column, descending, standing), [value, filter, column, descending])
  const at = Math.min(active, runs.length - 1)
  const sort = (next: Column): void => {
    setDescending(next === column ? !descending : next !== 'query' && next !== 'model' && next !== 'status')
    setColumn(next)
  }
  const toggle = (id: string): void =>
    setPicked((before) => (before.includes(id) ? before.filter((each) => each !== id) : [...before.slice(-1), id]))
  const move = (by: number) => (): void => setActive(Math.max(0, Math.min(runs.length - 1, at + by)))
  const open = (): void => {
    if (runs[at]) go(to.run(runs[at].run_id))
  }
  const compare = (): void => {
    if (picked.length === 2) go(to.compare(picked[0]!, picked[1]!))
  }
  useKeys({
    j: move(1),
    ArrowDown: move(1),
    k: move(-1),
    ArrowUp: move(-1),
    o: open,
    Enter: open,
    x: () => runs[at] && toggle(runs[at].run_id),
    c: compare,
    '/': () => field.current?.focus(),
  })
  if (!value) return <Waiting error={error} what="Loading runs" />
  const Row = narrow ? NarrowRow : WideRow
  return (
    <div class="list-page">
      <div class="bar">
        <h1>Runs</h1>
        <span class="faint">{runs.length === value.runs.length ? plural(runs.length, 'run') : `${count(runs.length)} of ${plural(value.runs.length, 'run')}`}</span>
        <Filters {...{ filter, models, field, sort, column, narrow }} change={setFilter} />
        <button type="button" class="compare" disabled={picked.length !== 2} onClick={compare} title="Select two runs to compare them (c)">
          Compare{picked.length ? ` ${picked.length} of 2` : ''}
        </button>
      </div>
      {value.skipped.count > 0 && (
        <p class="notice">
          {plural(value.skipped.count, 'line')} could not be read: {visible(value.skipped.reasons.slice(0, 5).join('; '))}
        </p>
      )}
      {value.reading && (
        <p class="notice quiet" role="status">
          Reading {plural(value.reading.files, 'file')}: {percent(Math.round(100 * value.reading.done))}
        </p>
      )}
      {error && <p class="problem">{visible(error)}</p>}
      {runs.length ? (
        <Windowed
          class="runs"
          role="table"
          label="Runs"
          count={runs.length}
          rowHeight={narrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT}
          active={at}
          focusable={false}
          head={narrow ? undefined : <Head column={column} descending={descending} sort={sort} />}
          row={(number) => {
            const run = runs[number]!
            return <Row run={run} isActive={number === at} picked={picked.includes(run.run_id)} toggle={() => toggle(run.run_id)} />
          }}
        />
      ) : (
        <p class="empty">{value.runs.length ? 'No runs match this filter.' : emptyWords(value.reading !== undefined)}</p>
      )}
    </div>
  )
}
