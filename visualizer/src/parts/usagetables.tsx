/** What a run used: by model, by depth and by step. */

import type { ComponentChildren, JSX } from 'preact'
import type { StepRow, UsageFacts, UsageRow } from '../contract'
import { to } from '../state/route'
import { count, dollars, percent, seconds } from '../text/format'
import { Line } from './words'

const MAX_STEPS = 200

interface TableProps {
  readonly title: string
  readonly heads: readonly string[]
  readonly rows: readonly { readonly key: string; readonly cells: readonly ComponentChildren[] }[]
  readonly foot?: readonly ComponentChildren[]
}

export function Table({ title, heads, rows, foot }: TableProps): JSX.Element {
  return (
    <section class="usage-table">
      <h2>{title}</h2>
      <div class="wide" tabIndex={0} role="region" aria-label={title}>
        <table class="numbers">
          <thead>
            <tr>
              {heads.map((head) => (
                <th key={head} scope="col">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ key, cells }) => (
              <tr key={key}>
                <th scope="row">{cells[0]}</th>
                {cells.slice(1).map((cell, at) => (
                  <td key={at}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
          {foot && (
            <tfoot>
              <tr>
                <th scope="row">{foot[0]}</th>
                {foot.slice(1).map((cell, at) => (
                  <td key={at}>{cell}</td>
                ))}
              </tr>
            </tfoot>
          )}
        </table>
      </div>
    </section>
  )
}

function share(tokens: number, whole: number): string {
  return whole > 0 ? percent(Math.round((1000 * tokens) / whole) / 10) : '–'
}

function used(row: UsageRow, whole: number): string[] {
  return [count(row.requests), count(row.input_tokens), count(row.output_tokens), share(row.tokens, whole), dollars(row.cost_usd)]
}

/** The steps that used the most, in their order. */
export function largest(steps: readonly StepRow[], most: number): StepRow[] {
  if (steps.length <= most) return [...steps]
  const chosen = new Set([...steps].sort((a, b) => b.tokens - a.tokens).slice(0, most))
  return steps.filter((step) => chosen.has(step))
}

export function UsageTables({ runId, usage }: { runId: string; usage: UsageFacts }): JSX.Element {
  const whole = usage.tokens
  const heads = ['requests', 'input', 'output', 'share', 'cost']
  const told = usage.models.reduce((sum, row) => sum + row.tokens, 0)
  const steps = usage.steps.filter((step) => step.step > 0 || step.tokens > 0)
  const listed = largest(steps, MAX_STEPS)
  return (
    <>
      <Table
        title="By model"
        heads={['model', ...heads]}
        rows={usage.models.map((row) => ({ key: row.model ?? '', cells: [<Line key="m" text={row.model ?? ''} most={80} empty="(no name)" />, ...used(row, whole)] }))}
        {...(told < whole ? { foot: ['not reported by model', '', '', '', share(whole - told, whole), ''] } : {})}
      />
      <Table
        title="By depth"
        heads={['depth', 'runs', ...heads]}
        rows={usage.depths.map((row) => ({ key: String(row.depth), cells: [row.depth, count(row.runs), ...used(row, whole)] }))}
      />
      <Table
        title={listed.length < steps.length ? `By step: the ${count(listed.length)} largest of ${count(steps.length)}` : 'By step'}
        heads={['step', 'calls', 'own tokens', 'with children', 'share', 'cost', 'time']}
        rows={listed.map((step) => ({
          key: String(step.step),
          cells: [
            <a key="s" href={to.step(runId, step.step)}>
              {step.step === 0 ? 'start' : `step ${step.step}`}
            </a>,
            count(step.calls),
            count(step.own_tokens),
            count(step.tokens),
            share(step.tokens, whole),
            dollars(step.cost_usd),
            seconds(step.end - step.start),
          ],
        }))}
      />
    </>
  )
}
