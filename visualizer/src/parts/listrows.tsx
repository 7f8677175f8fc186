/** The rows of the list: a run on a wide and on a narrow page, and a group of runs. */

import type { JSX } from 'preact'
import type { Outline } from '../contract'
import { type Group, totalsOf } from '../pages/arranged'
import { COLUMNS, type Column } from '../pages/columns'
import { to } from '../state/route'
import { costWords, count, dollars, moment, plural, seconds, short } from '../text/format'
import { oneLine } from '../text/hostile'
import { Badge, Status } from './small'
import { Line } from './words'

const GROUP_WORDS: Readonly<Record<string, readonly [string, string]>> = {
  chat: ['chat', 'turn'],
  batch: ['batch', 'row'],
  bench: ['bench', 'trial'],
}

/** Scores are written with at most three digits after the point. */
export function scoreText(score: number | null | undefined): string {
  return score == null || !Number.isFinite(score) ? '–' : String(Number(score.toFixed(3)))
}

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

export function Tags({ run }: { run: Outline }): JSX.Element {
  return (
    <>
      {run.tags?.slice(0, 4).map((tag) => (
        <Badge key={tag} kind="tag">
          {oneLine(tag, 30)}
        </Badge>
      ))}
      {(run.tags?.length ?? 0) > 4 && <Badge kind="quiet">{`${run.tags!.length - 4} more tags`}</Badge>}
      {(run.comments ?? 0) > 0 && <Badge kind="quiet">{plural(run.comments!, 'comment')}</Badge>}
    </>
  )
}

/** What was used of each model; one model alone is in its own column already. */
export function Costs({ run }: { run: Outline }): JSX.Element | null {
  const models = run.models ?? []
  if (models.length < 2) return null
  const words = models.map((use) => `${oneLine(use.model.split('/').pop() ?? '', 24)} ${costWords(use.cost_usd)}`).join(' · ')
  return (
    <span class="second faint" title={words}>
      {words}
    </span>
  )
}

/** The beginning of the answer, or why there is none. */
export function AnswerLine({ run }: { run: Outline }): JSX.Element {
  if (run.answer !== null) {
    return (
      <span class="second faint">
        <Line text={run.answer} most={160} empty="(an empty answer)" />
      </span>
    )
  }
  return <span class="second faint">{run.error ? <Line text={run.error} most={160} /> : run.status === 'running' ? 'no answer yet' : 'no answer'}</span>
}

export interface RowProps {
  readonly run: Outline
  readonly isActive: boolean
  readonly inGroup: boolean
  readonly picked: boolean
  readonly toggle: () => void
}

export function WideRow({ run, isActive, inGroup, picked, toggle }: RowProps): JSX.Element {
  return (
    <div class={`run-row ${isActive ? 'active' : ''} ${inGroup ? 'in-group' : ''}`} role="row" aria-selected={isActive} id={`row-${run.run_id}`}>
      <span role="cell" class="pick">
        <Picked run={run} picked={picked} toggle={toggle} />
      </span>
      <span role="cell">
        <Status run={run} />
      </span>
      <span role="cell" class="query">
        <span class="first">
          <a href={to.run(run.run_id)}>
            <Line text={run.query} empty={run.run_id} />
          </a>
          <Tags run={run} />
          {run.note !== undefined && <Badge kind="quiet">{oneLine(run.note, 80)}</Badge>}
          {run.attempts > 1 && <Badge kind="quiet" title="How many times the run was started">{`attempt ${run.attempts}`}</Badge>}
        </span>
        <AnswerLine run={run} />
      </span>
      <span role="cell" class="model">
        <Line text={run.model} most={60} />
        <Costs run={run} />
      </span>
      <span role="cell" class="number date">{moment(run.started)}</span>
      <span role="cell" class="number">{count(run.steps)}</span>
      <span role="cell" class="number">{short(run.all_calls)}</span>
      <span role="cell" class="number">{run.deepest}</span>
      <span role="cell" class="number">{short(run.tokens)}</span>
      <span role="cell" class="number">{dollars(run.cost_usd)}</span>
      <span role="cell" class="number">{seconds(run.seconds)}</span>
      <span role="cell" class="number">{scoreText(run.score)}</span>
    </div>
  )
}

export function NarrowRow({ run, isActive, inGroup, picked, toggle }: RowProps): JSX.Element {
  return (
    <div class={`run-card ${isActive ? 'active' : ''} ${inGroup ? 'in-group' : ''}`} role="row" aria-selected={isActive} id={`row-${run.run_id}`}>
      <span role="cell" class="pick">
        <Picked run={run} picked={picked} toggle={toggle} />
      </span>
      <span role="cell" class="card">
        <a href={to.run(run.run_id)}>
          <Line text={run.query} empty={run.run_id} />
        </a>
        <AnswerLine run={run} />
        <span class="card-facts">
          <Status run={run} />
          {run.score != null && <span>score {scoreText(run.score)}</span>}
          <Tags run={run} />
          {run.note !== undefined && <Badge kind="quiet">{oneLine(run.note, 80)}</Badge>}
          <span>{costWords(run.cost_usd)}</span>
          <span>{seconds(run.seconds)}</span>
          <span>{plural(run.steps, 'step')}</span>
        </span>
      </span>
    </div>
  )
}

interface GroupProps {
  readonly group: Group
  readonly isOpen: boolean
  readonly isActive: boolean
  readonly narrow: boolean
  readonly unfold: () => void
}

export function GroupRow({ group, isOpen, isActive, narrow, unfold }: GroupProps): JSX.Element {
  const [kind, member] = GROUP_WORDS[group.kind] ?? ['group', 'run']
  const totals = totalsOf(group.runs)
  const first = group.runs.reduce((one, other) => (other.started < one.started ? other : one))
  const name = group.kind === 'chat' ? first.query : group.name
  const facts = [plural(group.runs.length, member), `${short(totals.tokens)} tokens`, costWords(totals.cost_usd), seconds(totals.seconds)]
  if (totals.score !== null) facts.push(`mean score ${scoreText(totals.score)}`)
  return (
    <div class={`${narrow ? 'run-card' : 'group-row'} group ${isActive ? 'active' : ''}`} role="row" aria-selected={isActive}>
      <span role="cell" class="card" aria-colspan={COLUMNS.length + 1}>
        <button type="button" class="plain" aria-expanded={isOpen} onClick={unfold}>
          <span aria-hidden="true" class="arrow">
            {isOpen ? '▾' : '▸'}
          </span>
          <span class="kind">{kind}</span>
          <Line text={name} most={160} empty={group.name} />
        </button>
        <span class="card-facts">
          {facts.map((fact) => (
            <span key={fact}>{fact}</span>
          ))}
        </span>
      </span>
    </div>
  )
}

export function Head({ column, descending, sort }: { column: Column; descending: boolean; sort: (column: Column) => void }): JSX.Element {
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
