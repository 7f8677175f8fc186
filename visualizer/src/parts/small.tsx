/** Small components that many pages use. */

import type { ComponentChildren, JSX } from 'preact'
import type { Outline } from '../contract'
import { visible } from '../text/hostile'

export const SIGNS: Readonly<Record<string, string>> = {
  running: '●',
  interrupted: '✕',
  answer: '✓',
  passages: '¶',
  steps: '!',
  limit: '!',
  cancelled: '–',
  error: '✕',
}

/** The status of a run in one word, the one of `rlm runs`; a log may say anything in its place. */
export function standing(run: Pick<Outline, 'status' | 'stop_reason' | 'error'>): string {
  if (run.status !== 'ended') return run.status
  if (['steps', 'limit', 'cancelled', 'passages'].includes(run.stop_reason)) return run.stop_reason
  return run.error || run.stop_reason === 'error' ? 'error' : 'answer'
}

export function Status({ run }: { run: Outline }): JSX.Element {
  const word = standing(run)
  const why = [run.stop_reason && `stop reason: ${run.stop_reason}`, run.limit && `limit: ${run.limit}`, run.error]
  return (
    <span class={`status status-${word}`} title={visible(why.filter(Boolean).join('; ')) || word}>
      <span aria-hidden="true">{SIGNS[word] ?? '·'}</span> {word}
    </span>
  )
}

export function Badge({ kind, title, children }: { kind: string; title?: string; children: ComponentChildren }): JSX.Element {
  return (
    <span class={`badge badge-${kind}`} title={title}>
      {children}
    </span>
  )
}

export function Facts({ facts }: { facts: readonly (readonly [string, ComponentChildren])[] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

export function Waiting({ error, what }: { error: string | null; what: string }): JSX.Element {
  return error ? (
    <p class="problem" role="alert">
      {visible(error)}
    </p>
  ) : (
    <p class="faint waiting" aria-busy="true">
      {what}…
    </p>
  )
}

export const KIND_WORDS = {
  step: 'step',
  request: 'request',
  cell: 'cell',
  operator: 'operator',
  llm: 'model',
  rlm: 'child run',
  tool: 'tool',
  run: 'run',
} as const
