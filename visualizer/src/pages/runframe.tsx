/** What every page of a run has in common: its parents, its status, and links to its views. */

import type { JSX } from 'preact'
import { useRef } from 'preact/hooks'
import type { RunPage } from '../contract'
import { acting, ActionsButton } from '../parts/actions'
import { Status, Waiting } from '../parts/small'
import { Line } from '../parts/words'
import { connection } from '../state/app'
import { useKeys } from '../state/keys'
import { following, useRunPage } from '../state/live'
import { go, type Route, to } from '../state/route'
import { costWords, plural, seconds, short } from '../text/format'
import { oneLine, visible } from '../text/hostile'
import { CallsBody } from './calls'
import { ContextBody } from './context'
import { CoverageBody } from './coverage'
import { DataContext } from './datacoverage'
import { RunBody } from './run'
import { SearchBody } from './search'
import { UsageBody } from './usage'

type RunRoute = Exclude<Route, { page: 'list' | 'find' | 'compare' | 'results' }>

function Path({ page }: { page: RunPage }): JSX.Element {
  const byId = new Map(page.tree.map((run) => [run.run_id, run]))
  const above: RunPage['run'][] = []
  for (let id = page.run.parent_id; id !== null && above.length < 60; ) {
    const parent = byId.get(id)
    if (!parent || above.includes(parent)) break
    above.unshift(parent)
    id = parent.parent_id
  }
  return (
    <nav class="path" aria-label="Parent runs">
      <a href={to.list()}>Runs</a>
      {above.map((run) => (
        <span key={run.run_id}>
          <span aria-hidden="true">›</span>
          <a href={to.run(run.run_id)}>
            <Line text={run.query} most={40} empty={run.run_id} />
          </a>
        </span>
      ))}
    </nav>
  )
}

function Live({ page }: { page: RunPage }): JSX.Element | null {
  if (page.tree[0]?.status !== 'running') return null
  const steps = page.steps
  const follow = (): void => {
    following.value = true
    const newest = steps.at(-1)
    if (newest) go(to.step(page.run.run_id, newest.step))
  }
  return (
    <span class="live" role="status">
      {connection.value === 'lost' ? (
        <span class="lost">connection lost, trying again…</span>
      ) : (
        <span class="going">
          <span class="pulse" aria-hidden="true" />
          live
        </span>
      )}
      <button type="button" aria-pressed={following.value} onClick={follow} title="Follow the newest step (f)">
        {following.value ? 'Following' : 'Follow'}
      </button>
    </span>
  )
}

function Head({ page, route }: { page: RunPage; route: RunRoute }): JSX.Element {
  const { run } = page
  const field = useRef<HTMLInputElement>(null)
  useKeys({
    '/': () => field.current?.focus(),
    'g r': () => go(to.run(run.run_id)),
    'g c': () => go(to.calls(run.run_id)),
    'g u': () => go(to.coverage(run.run_id)),
    'g s': () => go(to.usage(run.run_id)),
    'g x': () => go(to.context(run.run_id)),
    a: () => (acting.value = run),
  })
  const tabs = [
    ['run', to.run(run.run_id), 'Steps'],
    ['calls', to.calls(run.run_id), 'Timeline'],
    ['usage', to.usage(run.run_id), 'Tokens and cost'],
    ['context', to.context(run.run_id), 'Context'],
    ['coverage', to.coverage(run.run_id), 'Coverage'],
  ] as const
  return (
    <header class="run-head">
      <Path page={page} />
      <div class="run-title">
        <h1>
          <Line text={run.query} most={400} empty={run.run_id} />
        </h1>
        <Live page={page} />
        <ActionsButton run={run} />
      </div>
      <p class="run-facts">
        <Status run={run} />
        <Line text={run.model} most={60} />
        <span>{plural(run.steps, 'step')}</span>
        <span>{plural(run.all_calls, 'call')}</span>
        {run.children > 0 && <span>{plural(run.children, 'child run')}</span>}
        <span>{short(run.tokens)} tokens</span>
        <span>{costWords(run.cost_usd)}</span>
        <span>{seconds(run.seconds)}</span>
        {run.attempts > 1 && <span>attempt {run.attempts}</span>}
        {run.note !== undefined && <span>{oneLine(run.note, 80)}</span>}
      </p>
      <div class="run-tabs">
        <nav class="tabs" aria-label="Views of this run">
          {tabs.map(([name, address, words]) => (
            <a key={name} href={address} aria-current={route.page === name ? 'page' : undefined}>
              {words}
            </a>
          ))}
        </nav>
        <form
          class="find"
          role="search"
          onSubmit={(event) => {
            event.preventDefault()
            const words = field.current?.value.trim()
            if (words) go(to.search(run.run_id, words))
            field.current?.blur()
          }}
        >
          <input ref={field} type="search" placeholder="Search this run  /" aria-label="Search this run and its child runs" defaultValue={route.page === 'search' ? route.words : ''} />
        </form>
      </div>
    </header>
  )
}

function Body({ page, route }: { page: RunPage; route: RunRoute }): JSX.Element {
  const { runId } = route
  switch (route.page) {
    case 'run':
      return <RunBody key={runId} page={page} step={route.step} call={route.call} />
    case 'calls':
      return <CallsBody key={runId} runId={runId} />
    case 'usage':
      return <UsageBody key={runId} runId={runId} />
    case 'coverage':
      return <CoverageBody key={runId} runId={runId} />
    case 'context':
      if (page.context.kind === 'source') return <DataContext runId={runId} description={page.context.description} />
      return <ContextBody key={runId} runId={runId} place={route.place} />
    case 'search':
      return <SearchBody key={runId} runId={runId} words={route.words} />
  }
}

export function RunFrame({ route }: { route: RunRoute }): JSX.Element {
  const { value, error } = useRunPage(route.runId)
  if (!value) return <Waiting error={error} what="Loading the run" />
  return (
    <div class="run-page">
      <Head key={value.run.run_id} page={value} route={route} />
      {error && connection.value !== 'lost' && (
        <p class="problem" role="alert">
          {visible(error)}
        </p>
      )}
      <div class={`run-view view-${route.page}`}>
        <Body page={value} route={route} />
      </div>
    </div>
  )
}
