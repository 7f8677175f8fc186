/** All runs: filter them, sort by any column, select two to compare. The filter and the order stand in the address. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Filters } from '../parts/filters'
import { GroupRow, Head, NarrowRow, WideRow } from '../parts/listrows'
import { standing, Waiting } from '../parts/small'
import { useNarrow, Windowed } from '../parts/windowed'
import { connection, source, sourceNumber, theSource, viewer } from '../state/app'
import { throttled, useAsked } from '../state/asked'
import { useKeys } from '../state/keys'
import { go, to } from '../state/route'
import { count, percent, plural } from '../text/format'
import { visible } from '../text/hostile'
import { arranged, grouped, type Item } from './arranged'
import type { Column } from './columns'
import { type Filter, filterIn, NEWEST_FIRST, optionsOf, orderIn } from './filter'

const ROW_HEIGHT = 48
const NARROW_ROW_HEIGHT = 92
const FILES_EMPTY = 'This file contains no runs.'

function emptyWords(isReading: boolean): string {
  if (isReading) return ''
  return viewer.value?.live ? visible(viewer.value.empty ?? 'No runs yet.') : FILES_EMPTY
}

/** The runs, and again whenever they change. */
function useRuns(): ReturnType<typeof useAsked<Awaited<ReturnType<ReturnType<typeof theSource>['runs']>>>> {
  const asked = useAsked(() => theSource().runs(), `runs ${sourceNumber.value}`)
  useEffect(() => {
    if (!viewer.value?.live) return
    const reload = throttled(asked.again, 500)
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
  return asked
}

const TEXT_COLUMNS: readonly Column[] = ['query', 'model', 'status']

export function ListPage({ options }: { options: string }): JSX.Element {
  const { value, error } = useRuns()
  const filter = useMemo(() => filterIn(options), [options])
  const { column, descending } = useMemo(() => orderIn(options), [options])
  // No row is active before a key moves to one; until then, Enter opens the first.
  const [active, setActive] = useState(-1)
  const [picked, setPicked] = useState<readonly string[]>([])
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set())
  const field = useRef<HTMLInputElement | null>(null)
  const narrow = useNarrow()
  const all = value?.runs ?? []
  const runs = useMemo(() => arranged(all, filter, column, descending, standing), [value, filter, column, descending])
  const items = useMemo(() => grouped(runs, open), [runs, open])
  const at = Math.min(active, items.length - 1)
  const change = (next: Filter): void => go(to.list(optionsOf(next, { column, descending })), true)
  const sort = (next: Column): void => {
    const order = { column: next, descending: next === column ? !descending : !TEXT_COLUMNS.includes(next) }
    go(to.list(optionsOf(filter, narrow && next === NEWEST_FIRST.column ? NEWEST_FIRST : order)), true)
  }
  const toggle = (id: string): void =>
    setPicked((before) => (before.includes(id) ? before.filter((each) => each !== id) : [...before.slice(-1), id]))
  const unfold = (key: string): void =>
    setOpen((before) => {
      const next = new Set(before)
      if (!next.delete(key)) next.add(key)
      return next
    })
  const move = (by: number) => (): void => setActive(Math.max(0, Math.min(items.length - 1, at + by)))
  const activate = (): void => {
    const item = items[Math.max(0, at)]
    if (!item) return
    if ('run' in item) go(to.run(item.run.run_id))
    else unfold(item.group.key)
  }
  const compare = (): void => {
    if (picked.length === 2) go(to.compare(picked[0]!, picked[1]!))
  }
  useKeys({
    j: move(1),
    ArrowDown: move(1),
    k: move(-1),
    ArrowUp: move(-1),
    o: activate,
    Enter: activate,
    x: () => {
      const item = items[at]
      if (item && 'run' in item) toggle(item.run.run_id)
    },
    c: compare,
    '/': () => field.current?.focus(),
  })
  if (!value) return <Waiting error={error} what="Loading runs" />
  const row = (item: Item, number: number): JSX.Element => {
    const isActive = number === at
    if ('group' in item) return <GroupRow {...item} isActive={isActive} narrow={narrow} unfold={() => unfold(item.group.key)} />
    const { run } = item
    const Row = narrow ? NarrowRow : WideRow
    return <Row run={run} isActive={isActive} inGroup={item.inGroup} picked={picked.includes(run.run_id)} toggle={() => toggle(run.run_id)} />
  }
  return (
    <div class="list-page">
      <div class="bar">
        <h1>Runs</h1>
        <span class="faint">{runs.length === all.length ? plural(runs.length, 'run') : `${count(runs.length)} of ${plural(all.length, 'run')}`}</span>
        <Filters
          {...{ filter, change, field, sort, column, narrow }}
          runs={all}
          find={() => filter.words.trim() && viewer.value?.can_search && go(to.find(optionsOf(filter)))}
        />
        <button type="button" class="compare" disabled={picked.length !== 2} onClick={compare} title="Select two runs to compare them (c)">
          Compare{picked.length ? ` ${picked.length} of 2` : ''}
        </button>
      </div>
      {filter.words.trim() && viewer.value?.can_search && (
        <p class="faint find-hint">
          <a href={to.find(optionsOf(filter))}>Search queries, answers, code and output of all runs for these words</a>
        </p>
      )}
      {value.skipped.reasons.length > 0 && (
        <p class="notice">
          {value.skipped.count > 0 && `${plural(value.skipped.count, 'line')} could not be read: `}
          {visible(value.skipped.reasons.slice(0, 5).join('; '))}
        </p>
      )}
      {value.reading && (
        <p class="notice quiet" role="status">
          Reading {plural(value.reading.files, 'file')}: {percent(Math.round(100 * value.reading.done))}
        </p>
      )}
      {error && <p class="problem">{visible(error)}</p>}
      {items.length ? (
        <Windowed
          class="runs"
          role="table"
          label="Runs"
          count={items.length}
          rowHeight={narrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT}
          active={at}
          focusable={false}
          head={narrow ? undefined : <Head column={column} descending={descending} sort={sort} />}
          row={(number) => row(items[number]!, number)}
        />
      ) : (
        <p class="empty">{all.length ? 'No runs match this filter.' : emptyWords(value.reading !== undefined)}</p>
      )}
    </div>
  )
}
