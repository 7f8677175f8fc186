/** The steps of a run over time: one row per step, with a bar that shows when it ran and for how long. */

import type { JSX } from 'preact'
import type { StepRow } from '../contract'
import { to } from '../state/route'
import { dollars, plural, seconds, short } from '../text/format'
import { Windowed } from './windowed'

const ROW_HEIGHT = 40

export function Steps({ runId, steps, current }: { runId: string; steps: readonly StepRow[]; current: number | null }): JSX.Element {
  const start = steps[0]?.start ?? 0
  const end = steps.reduce((latest, step) => Math.max(latest, step.end), start + 1e-3)
  const at = steps.findIndex((step) => step.step === current)
  const share = (time: number): number => Math.max(0, Math.min(100, (100 * (time - start)) / (end - start)))
  return (
    <Windowed
      class="steps"
      label="Steps over time. j and k move through them"
      count={steps.length}
      rowHeight={ROW_HEIGHT}
      active={at}
      focusable={false}
      row={(number) => {
        const step = steps[number]!
        const facts = [
          step.calls ? plural(step.calls, 'call') : '',
          step.tools ? plural(step.tools, 'tool call') : '',
          step.tokens ? `${short(step.tokens)} tok${step.tokens === step.own_tokens ? '' : ` (own ${short(step.own_tokens)})`}` : '',
          step.cost_usd ? dollars(step.cost_usd) : '',
        ].filter(Boolean)
        return (
          <a
            class={`step-row ${step.step === current ? 'current' : ''}`}
            aria-current={step.step === current ? 'step' : undefined}
            href={to.step(runId, step.step)}
          >
            <span class="name">
              {step.step === 0 ? 'start' : `step ${step.step}`}
              {step.error && (
                <span class="error-sign" title="A cell or the request failed">
                  {' '}
                  ✕<span class="hidden"> failed</span>
                </span>
              )}
            </span>
            <span class="step-row-facts">{facts.join(' · ')}</span>
            <span class="number">{seconds(step.end - step.start)}</span>
            <span class="track" aria-hidden="true">
              <span
                class={`bar ${step.error ? 'bar-error' : ''}`}
                style={{ left: `${share(step.start)}%`, width: `${Math.max(0.8, share(step.end) - share(step.start))}%` }}
              />
            </span>
          </a>
        )
      }}
    />
  )
}
