/** Two runs side by side: facts, answers, and the code of their steps. */

import type { ComponentChildren, JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import type { RunPage } from '../contract'
import { standing, Waiting } from '../parts/small'
import { Line, Words } from '../parts/words'
import { sourceNumber, theSource } from '../state/app'
import { useAsked } from '../state/asked'
import { to } from '../state/route'
import { diff, folded } from '../text/diff'
import { count, dollars, moment, seconds } from '../text/format'
import { cut } from '../text/hostile'

const MAX_CHARS = 60_000
const MAX_LINES = 1_500
const STEPS_AT_ONCE = 20
const SIGN = { same: ' ', removed: '−', added: '+' } as const

export function Diff({ one, other, label }: { one: string; other: string; label: string }): JSX.Element {
  const lines = useMemo(() => folded(diff(cut(one, MAX_CHARS), cut(other, MAX_CHARS))).slice(0, MAX_LINES), [one, other])
  if (one === other) return <p class="faint">The same in both.</p>
  return (
    <div class="diff wide" role="group" aria-label={label} tabIndex={0}>
      {lines.map((line, at) =>
        'folded' in line ? (
          <p key={at} class="fold">
            {count(line.folded)} unchanged lines
          </p>
        ) : (
          <p key={at} class={line.kind}>
            <span class="sign" role="img" aria-label={line.kind}>
              {SIGN[line.kind]}
            </span>
            <Words text={cut(line.text, 2_000)} />
          </p>
        ),
      )}
    </div>
  )
}

function StepDiff({ one, other, step }: { one: RunPage; other: RunPage; step: number }): JSX.Element {
  const [chosen, setChosen] = useState<boolean | null>(null)
  const has = (page: RunPage): boolean => page.steps.some((each) => each.step === step)
  const { value, error } = useAsked(
    () => Promise.all([one, other].map((page) => (has(page) ? theSource().code(page.run.run_id, step) : ''))),
    `code ${one.run.run_id} ${other.run.run_id} ${step}`,
  )
  const open = opensByItself(value, chosen)
  return (
    <details open={open} onToggle={(event) => event.currentTarget.open !== open && setChosen(event.currentTarget.open)} class="step-diff">
      <summary>
        Step {step}
        {!has(one) && <span class="faint"> only in B</span>}
        {!has(other) && <span class="faint"> only in A</span>}
        {value && value[0] === value[1] && <span class="faint"> {value[0] ? 'the same in both' : 'no code in either'}</span>}
      </summary>
      {!value ? <Waiting error={error} what="Loading" /> : open && <Diff one={value[0] ?? ''} other={value[1] ?? ''} label={`Code of step ${step}`} />}
    </details>
  )
}

/** A step whose code differs is open from the start; the others open on demand. */
export function opensByItself(codes: readonly string[] | null | undefined, chosen: boolean | null): boolean {
  return chosen ?? (codes ? codes[0] !== codes[1] : false)
}

type Fact = readonly [name: string, of: (page: RunPage) => ComponentChildren, number?: (page: RunPage) => number | null, format?: (value: number) => string]

const FACTS: readonly Fact[] = [
  ['query', ({ run }) => <Line key="q" text={run.query} most={300} />],
  ['status', ({ run }) => standing(run)],
  ['model', ({ run }) => <Line key="m" text={run.model} />],
  ['model for calls', ({ started }) => <Line key="s" text={started?.sub_model ?? ''} />],
  ['started', ({ run }) => moment(run.started)],
  ['steps', ({ run }) => count(run.steps), ({ run }) => run.steps, count],
  ['calls', ({ run }) => count(run.all_calls), ({ run }) => run.all_calls, count],
  ['child runs', ({ run }) => count(run.children), ({ run }) => run.children, count],
  ['depth', ({ run }) => count(run.deepest), ({ run }) => run.deepest, count],
  ['tokens', ({ run }) => count(run.tokens), ({ run }) => run.tokens, count],
  ['cost', ({ run }) => dollars(run.cost_usd), ({ run }) => run.cost_usd, dollars],
  ['time', ({ run }) => seconds(run.seconds), ({ run }) => run.seconds, seconds],
  ['context', ({ context }) => <Line key="c" text={context.description} />],
]

function difference([, , number, format]: Fact, one: RunPage, other: RunPage): string {
  const left = number?.(one)
  const right = number?.(other)
  if (left == null || right == null || left === right || !format) return ''
  return `${right > left ? '+' : '−'}${format(Math.abs(right - left))}`
}

function FactTable({ one, other }: { one: RunPage; other: RunPage }): JSX.Element {
  return (
    <div class="wide">
      <table class="compare-facts">
        <thead>
          <tr>
            <td />
            <th scope="col">
              A <a href={to.run(one.run.run_id)}>open</a>
            </th>
            <th scope="col">
              B <a href={to.run(other.run.run_id)}>open</a>
            </th>
            <th scope="col" class="number">
              B − A
            </th>
          </tr>
        </thead>
        <tbody>
          {FACTS.map((fact) => (
            <tr key={fact[0]}>
              <th scope="row">{fact[0]}</th>
              <td>{fact[1](one)}</td>
              <td>{fact[1](other)}</td>
              <td class="number">{difference(fact, one, other)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

export function ComparePage({ one, other }: { one: string; other: string }): JSX.Element {
  const { value, error } = useAsked(
    () => Promise.all([theSource().run(one), theSource().run(other)]),
    `compare ${sourceNumber.value} ${one} ${other}`,
  )
  const [shown, setShown] = useState(STEPS_AT_ONCE)
  if (!value) return <Waiting error={error} what="Loading both runs" />
  const [left, right] = value
  const steps = [...new Set([...left.steps, ...right.steps].map((each) => each.step))].filter((step) => step > 0).sort((a, b) => a - b)
  const answers = value.map((page) => page.ended?.answer ?? page.run.answer ?? '')
  return (
    <div class="compare-page">
      <h1>
        Compare two runs <a class="swap" href={to.compare(other, one)}>swap A and B</a>
      </h1>
      <FactTable one={left} other={right} />
      <h2>Answers</h2>
      {answers[0] || answers[1] ? <Diff one={answers[0] ?? ''} other={answers[1] ?? ''} label="Answers" /> : <p class="faint">Neither run has an answer.</p>}
      <h2>Code, step by step</h2>
      {steps.slice(0, shown).map((step) => (
        <StepDiff key={step} one={left} other={right} step={step} />
      ))}
      {steps.length > shown && (
        <button type="button" onClick={() => setShown(shown + STEPS_AT_ONCE)}>
          Show more steps
        </button>
      )}
    </div>
  )
}
