/** A run: its tree, its steps, and the selected step. */

import type { JSX } from 'preact'
import { useCallback, useEffect, useRef } from 'preact/hooks'
import type { RunPage as Page } from '../contract'
import { Citations } from '../parts/citations'
import { JudgePanel } from '../parts/judge'
import { LongText } from '../parts/longtext'
import { Markdown } from '../parts/markdown'
import { Facts, standing } from '../parts/small'
import { Steps } from '../parts/steps'
import { StepView } from '../parts/stepview'
import { Tree } from '../parts/tree'
import { Words } from '../parts/words'
import { theSource } from '../state/app'
import { currentHit, forgetHit, useHit } from '../state/hit'
import { useKeys } from '../state/keys'
import { following } from '../state/live'
import { go, to } from '../state/route'
import { bytes, count, dollars, moment, seconds } from '../text/format'
import { oneLine } from '../text/hostile'
import { blocks } from '../text/markdown'

const MAX_MARKDOWN_CHARS = 20_000
const NEAR_END = 80

function Answer({ page }: { page: Page }): JSX.Element {
  const { run, ended } = page
  const answer = ended?.answer ?? run.answer
  if (answer === null || answer === undefined) {
    return <p class="faint">{run.status === 'running' ? 'No answer yet: the run is in progress.' : 'The run has no answer.'}</p>
  }
  const cutTo = (ended as { cut?: Record<string, number> } | null)?.cut?.['answer']
  if (cutTo || answer.length > MAX_MARKDOWN_CHARS) {
    const index = (ended as { index?: number } | null)?.index
    const load = index === undefined ? undefined : () => theSource().text(run.run_id, index, 'answer')
    return <LongText text={answer} total={cutTo} load={load} label="Answer" as="prose" event={index} />
  }
  return <Markdown blocks={blocks(answer)} />
}

function Overview({ page }: { page: Page }): JSX.Element {
  const { run, started, ended, context } = page
  const usage = ended?.usage
  const box = useHit<HTMLElement>((ended as { index?: number } | null)?.index, page)
  return (
    <article class="overview">
      <section>
        <h2>Query</h2>
        <LongText as="prose" text={started?.query ?? run.query} label="Query" event={0} />
      </section>
      <section class="answer" ref={box}>
        <h2>{run.stop_reason === 'passages' ? 'Passages, not an answer' : 'Answer'}</h2>
        <Answer page={page} />
        <Citations runId={run.run_id} ended={ended} />
        {(ended?.error ?? run.error) && (
          <p class="problem">
            <Words text={ended?.error ?? run.error ?? ''} />
            {ended?.detail && (
              <>
                {' '}
                <Words text={ended.detail} />
              </>
            )}
          </p>
        )}
      </section>
      {run.parent_id === null && <JudgePanel key={run.run_id} runId={run.run_id} />}
      <section>
        <h2>Facts</h2>
        <Facts
          facts={[
            ['status', standing(run)],
            ['stop reason', oneLine(run.stop_reason, 60) || '–'],
            ['answer source', oneLine(run.answer_source, 60) || '–'],
            ...(run.limit ? ([['limit', oneLine(run.limit, 60)]] as const) : []),
            ['model', <Words key="m" text={run.model} />],
            ['model for calls', <Words key="s" text={started?.sub_model ?? '–'} />],
            ['environment', <Words key="e" text={started?.environment ?? '–'} />],
            ['strategy', oneLine(started?.strategy ?? '–', 60)],
            ['started', moment(run.started)],
            ['duration', seconds(run.seconds)],
            ['tokens', usage ? `${count(usage.input_tokens ?? 0)} in, ${count(usage.output_tokens ?? 0)} out` : count(run.tokens)],
            ['cost', dollars(run.cost_usd)],
            ['child runs', count(run.children)],
            ['attempts', count(run.attempts)],
            ['id', <Words key="i" text={run.run_id} />],
          ]}
        />
      </section>
      <section>
        <h2>Context</h2>
        <p>
          <Words text={context.description || 'No description was recorded.'} />
        </p>
        {context.bytes > 0 && (
          <p class="faint">
            {context.kind === 'source' ? 'data that stays where it is' : `${oneLine(context.kind, 40)}, ${bytes(context.bytes)}`}
            {context.kind === 'source' ? <> · <a href={to.coverage(run.run_id)}>what was read</a></> : context.available ? <> · <a href={to.context(run.run_id)}>read it</a> · <a href={to.coverage(run.run_id)}>what was read</a></> : ' · its text is not available'}
          </p>
        )}
      </section>
      {started?.settings && Object.keys(started.settings).length > 0 && (
        <details>
          <summary>Settings</summary>
          <LongText text={JSON.stringify(started.settings, null, 2)} label="Settings" />
        </details>
      )}
    </article>
  )
}

/** The element that scrolls: the selected step on wide pages, the whole view on narrow ones. */
function scrollerOf(element: HTMLElement | null): HTMLElement | null {
  if (!element || getComputedStyle(element).overflowY === 'auto') return element
  return element.closest<HTMLElement>('.run-view')
}

/** Goes to the newest step while the run is in progress, unless the user has gone elsewhere. */
function useFollowing(page: Page, step: number | null): { box: { current: HTMLElement | null }; grown: () => void } {
  const box = useRef<HTMLElement | null>(null)
  const isRunning = page.run.status === 'running'
  const newest = page.steps.at(-1)?.step ?? null
  useEffect(() => {
    if (isRunning && following.value && newest !== null && newest !== step) go(to.step(page.run.run_id, newest), true)
  }, [newest, isRunning, following.value])
  useEffect(() => {
    const element = scrollerOf(box.current)
    if (!element || !isRunning) return
    let last = element.scrollTop
    const look = (): void => {
      const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END
      if (element.scrollTop < last - 4 && !isAtEnd) following.value = false
      last = element.scrollTop
    }
    element.addEventListener('scroll', look, { passive: true })
    return () => element.removeEventListener('scroll', look)
  }, [isRunning])
  const grown = useCallback(() => {
    const element = scrollerOf(box.current)
    if (element && following.value && isRunning) element.scrollTop = element.scrollHeight
  }, [isRunning])
  return { box, grown }
}

export function RunBody({ page, step, call }: { page: Page; step: number | null; call: string | null }): JSX.Element {
  const { run, tree, steps } = page
  const { box, grown } = useFollowing(page, step)
  const at = steps.findIndex((each) => each.step === step)
  const aside = useRef<HTMLElement | null>(null)
  const show = (number: number): void => {
    const wanted = steps[Math.max(0, Math.min(steps.length - 1, number))]
    if (!wanted) return
    following.value = wanted === steps.at(-1)
    go(to.step(run.run_id, wanted.step))
  }
  useKeys({
    j: () => show(at + 1),
    ArrowDown: () => show(at + 1),
    k: () => show(at < 0 ? steps.length - 1 : at - 1),
    ArrowUp: () => show(at < 0 ? steps.length - 1 : at - 1),
    o: () => show(at < 0 ? 0 : at),
    Enter: () => show(at < 0 ? 0 : at),
    Escape: () => go(to.run(run.run_id)),
    t: () => aside.current?.querySelector<HTMLElement>('.tree')?.focus(),
    f: () => {
      following.value = true
      if (steps.length && run.status === 'running') show(steps.length - 1)
    },
  })
  useEffect(() => forgetHit, [location.hash])
  useEffect(() => {
    // A search led to a place in it, which is scrolled to instead.
    if (currentHit() || (following.value && run.status === 'running')) return
    const element = box.current
    if (scrollerOf(element) === element) element?.scrollTo(0, 0)
    else if (step !== null) element?.scrollIntoView({ block: 'start' })
  }, [run.run_id, step])
  return (
    <div class="run-body">
      <aside ref={aside} aria-label="Tree and steps">
        {tree.length > 1 && (
          <section class="aside-tree">
            <h2>
              Runs <kbd>t</kbd>
            </h2>
            <Tree tree={tree} current={run.run_id} />
          </section>
        )}
        <section class="aside-steps">
          <h2>
            Steps <kbd>j</kbd>
            <kbd>k</kbd>
          </h2>
          <a class={`step-row overview-row ${step === null ? 'current' : ''}`} href={to.run(run.run_id)}>
            <span class="name">overview</span>
          </a>
          {steps.length ? <Steps runId={run.run_id} steps={steps} current={step} /> : <p class="faint">No steps yet.</p>}
        </section>
      </aside>
      <section class="reading" ref={box} aria-label="Selected step" tabIndex={-1}>
        {step === null ? <Overview page={page} /> : <StepView runId={run.run_id} step={step} row={steps[at]} opened={call} grown={grown} />}
      </section>
    </div>
  )
}
