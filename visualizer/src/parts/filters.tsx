/** The fields that filter the list, and the search over all texts. */

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import type { Outline } from '../contract'
import { COLUMNS, type Column } from '../pages/columns'
import { type Filter, groupKey, SCORES, STANDINGS } from '../pages/filter'
import { oneLine } from '../text/hostile'

const MOST = 200

interface SelectProps {
  readonly label: string
  readonly any: string
  readonly value: string
  readonly options: readonly (readonly [string, string])[]
  readonly change: (value: string) => void
}

/** A value of the address that no run has is still shown, so that it can be taken back. */
function Select({ label, any, value, options, change }: SelectProps): JSX.Element {
  const known = !value || options.some(([each]) => each === value)
  return (
    <select aria-label={label} value={value} onChange={(event) => change(event.currentTarget.value)}>
      <option value="">{any}</option>
      {(known ? options : [...options, [value, oneLine(value, 40)] as const]).map(([each, words]) => (
        <option key={each} value={each}>
          {words}
        </option>
      ))}
    </select>
  )
}

function named(values: Iterable<string>): (readonly [string, string])[] {
  return [...new Set(values)].filter(Boolean).sort().slice(0, MOST).map((value) => [value, oneLine(value, 40)])
}

export interface FiltersProps {
  readonly runs: readonly Outline[]
  readonly filter: Filter
  readonly change: (filter: Filter) => void
  readonly field: { current: HTMLInputElement | null }
  readonly sort?: (column: Column) => void
  readonly column?: Column
  readonly narrow?: boolean
  /** Search the texts of all runs, with Enter. */
  readonly find: () => void
}

export function Filters({ runs, filter, change, field, sort, column, narrow, find }: FiltersProps): JSX.Element {
  const models = useMemo(() => named(runs.map((run) => run.model)), [runs])
  const tags = useMemo(() => named(runs.flatMap((run) => run.tags ?? [])), [runs])
  const groups = useMemo(() => named(runs.map(groupKey)), [runs])
  const hasScores = useMemo(() => runs.some((run) => run.score != null), [runs])
  const set = (part: Partial<Filter>): void => change({ ...filter, ...part })
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault()
        find()
      }}
    >
      <input
        ref={field}
        type="search"
        placeholder="Filter runs  /"
        aria-label="Filter runs by words in the query, answer, model, tags or id"
        value={filter.words}
        onInput={(event) => set({ words: event.currentTarget.value })}
      />
      <Select label="Status" any="any status" value={filter.standing} options={STANDINGS.map((word) => [word, word])} change={(standing) => set({ standing })} />
      <Select label="Model" any="any model" value={filter.model} options={models} change={(model) => set({ model })} />
      {(tags.length > 0 || filter.tag) && <Select label="Tag" any="any tag" value={filter.tag} options={tags} change={(tag) => set({ tag })} />}
      {(hasScores || filter.score) && (
        <Select label="Score" any="any score" value={filter.score} options={SCORES.map(([value, words]) => [value, words])} change={(score) => set({ score })} />
      )}
      {(groups.length > 0 || filter.group) && <Select label="Group" any="any group" value={filter.group} options={groups} change={(group) => set({ group })} />}
      {narrow && sort && (
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
