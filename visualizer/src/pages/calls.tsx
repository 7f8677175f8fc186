/** A tree of runs over time: its steps, requests, cells, operators and calls, as a chart to zoom into and as a list. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { CallRow } from '../contract'
import { barAt, gantt as laidOut, type Gantt, moved, type View, zoomed } from '../layout/gantt'
import { depthName } from '../parts/colour'
import { AXIS_HEIGHT, draw } from '../parts/ganttdraw'
import { CallFlags } from '../parts/call'
import { KIND_WORDS, Waiting } from '../parts/small'
import { useWidth } from '../parts/size'
import { useNarrow, Windowed } from '../parts/windowed'
import { Line } from '../parts/words'
import { sourceNumber, theSource } from '../state/app'
import { throttled, useAsked } from '../state/asked'
import { live } from '../state/live'
import { go, to } from '../state/route'
import { colours } from '../state/theme'
import { count, dollars, plural, seconds, short } from '../text/format'
import { oneLine } from '../text/hostile'

const KINDS = ['step', 'request', 'cell', 'operator', 'llm', 'rlm', 'tool', 'run'] as const
const KIND_NOTES: Readonly<Record<string, string>> = {
  request: ' by a run itself',
  rlm: ' (slanted lines)',
  run: ' without a call',
  tool: ' (upright lines)',
}
const MAX_HEIGHT = 420
const ROW_HEIGHT = 30
const LIVE_MS = 1_500
type Kind = CallRow['kind']
const KIND_PLURALS: Readonly<Record<Kind, string>> = {
  step: 'steps',
  request: 'requests',
  cell: 'cells',
  operator: 'operators',
  llm: 'model calls',
  rlm: 'child runs',
  tool: 'tools',
  run: 'other runs',
}

function isCall(call: CallRow): boolean {
  return call.kind === 'llm' || call.kind === 'rlm' || call.kind === 'tool'
}

export function addressOf(call: CallRow): string {
  if (call.kind === 'run') return to.run(call.run_id)
  return to.step(call.run_id, call.step, isCall(call) ? call.call_id : null)
}

/** One call in a sentence, for the tooltip and for screen readers. */
function sentence(call: CallRow, start: number): string {
  const parts = [
    call.kind === 'step' || call.kind === 'cell' ? oneLine(call.model, 40) : `${KIND_WORDS[call.kind]} ${oneLine(call.model, 40)}`,
    `${call.step ? `step ${call.step}, ` : ''}depth ${call.depth}`,
    `at ${seconds(call.start - start)}`,
    call.end === null ? 'in progress' : `took ${seconds(call.end - call.start)}`,
    call.tokens ? `${count(call.tokens)} tokens` : '',
    call.cost_usd !== null ? dollars(call.cost_usd) : '',
    call.stored ? 'stored reply' : '',
    call.retries ? `retried ${call.retries}×` : '',
    call.error !== null ? `failed: ${oneLine(call.error, 80)}` : '',
  ]
  return parts.filter(Boolean).join(', ')
}

/** What is shown. Kinds that the run does not have are not offered. */
function Kinds({ there, hidden, toggle }: { there: ReadonlySet<Kind>; hidden: ReadonlySet<Kind>; toggle: (kind: Kind) => void }): JSX.Element {
  return (
    <fieldset class="kinds">
      <legend class="hidden">Show</legend>
      {KINDS.filter((kind) => there.has(kind)).map((kind) => (
        <label key={kind}>
          <input type="checkbox" checked={!hidden.has(kind)} onChange={() => toggle(kind)} />
          {KIND_PLURALS[kind]}
        </label>
      ))}
    </fieldset>
  )
}

function Legend({ by, depths, there }: { by: 'kind' | 'depth'; depths: readonly number[]; there: ReadonlySet<Kind> }): JSX.Element {
  return (
    <ul class="legend" aria-label="Legend">
      {by === 'kind'
        ? KINDS.filter((kind) => there.has(kind)).map((kind) => (
            <li key={kind}>
              <span class={`swatch swatch-${kind}`} aria-hidden="true" />
              {KIND_WORDS[kind]}
              <span class="faint">{KIND_NOTES[kind] ?? ''}</span>
            </li>
          ))
        : depths.slice(0, 8).map((depth) => (
            <li key={depth}>
              <span class="swatch" style={{ background: `var(${depthName(depth)})` }} aria-hidden="true" />
              depth {depth}
            </li>
          ))}
      <li>
        <span class="swatch swatch-stored" aria-hidden="true" />
        stored reply <span class="faint">(hollow)</span>
      </li>
      <li>
        <span class="swatch swatch-failed" aria-hidden="true" />
        failed <span class="faint">(red end)</span>
      </li>
    </ul>
  )
}

interface ChartProps {
  readonly gantt: Gantt
  readonly by: 'kind' | 'depth'
  readonly chosen: number
  readonly choose: (at: number) => void
  readonly view: View
  readonly setView: (view: View) => void
}

function Chart({ gantt, by, chosen, choose, view, setView }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [scroll, setScroll] = useState(0)
  const [tip, setTip] = useState<{ x: number; y: number; call: CallRow } | null>(null)
  const width = useWidth(box)
  const whole = { from: gantt.start, to: Math.max(gantt.end, gantt.start + 1e-3) }
  const laneHeight = Math.max(3, Math.min(18, MAX_HEIGHT / Math.max(1, gantt.lanes)))
  const inner = Math.ceil(gantt.lanes * laneHeight) + AXIS_HEIGHT + 4
  const height = Math.min(MAX_HEIGHT + AXIS_HEIGHT + 4, inner)
  const active = gantt.bars[chosen] ?? null
  useEffect(() => {
    if (canvas.current && width > 0) {
      draw(canvas.current, { gantt, view, laneHeight, by, chosen: active?.call ?? null, width, height, scroll })
    }
  }, [gantt, view, width, height, scroll, by, active, colours.value])
  const timeAt = (x: number): number => view.from + (x / Math.max(1, width)) * (view.to - view.from)
  const state = useRef({ view, whole, timeAt, setView })
  state.current = { view, whole, timeAt, setView }
  useEffect(() => {
    const element = box.current
    const turned = (event: WheelEvent): void => {
      const now = state.current
      event.preventDefault()
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0
      const span = now.view.to - now.view.from
      if (sideways) now.setView(moved(now.view, (sideways / 600) * span, now.whole))
      else {
        const place = event.clientX - (element?.getBoundingClientRect().left ?? 0)
        now.setView(zoomed(now.view, Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), now.timeAt(place), now.whole))
      }
    }
    element?.addEventListener('wheel', turned, { passive: false })
    return () => element?.removeEventListener('wheel', turned)
  }, [])
  const under = (event: MouseEvent): { x: number; y: number; at: number } => {
    const frame = canvas.current!.getBoundingClientRect()
    const x = event.clientX - frame.left
    const y = event.clientY - frame.top
    const lane = Math.floor((y - AXIS_HEIGHT + scroll) / laneHeight)
    const slack = (4 / Math.max(1, width)) * (view.to - view.from)
    const bar = y > AXIS_HEIGHT ? barAt(gantt.bars, lane, timeAt(x), slack) : null
    return { x, y, at: bar ? gantt.bars.indexOf(bar) : -1 }
  }
  const around = (): number => (active ? (active.start + active.end) / 2 : (view.from + view.to) / 2)
  const step = (by: number): void => {
    const next = Math.max(0, Math.min(gantt.bars.length - 1, chosen + by))
    choose(next)
    const bar = gantt.bars[next]
    if (!bar || !box.current) return
    if (bar.start > view.to || bar.end < view.from) {
      setView(moved(view, bar.start - (view.from + view.to) / 2, whole))
    }
    const top = bar.lane * laneHeight
    if (top < scroll || top > scroll + height - AXIS_HEIGHT - laneHeight) box.current.scrollTop = top - height / 2
  }
  const pressed = (event: KeyboardEvent): void => {
    const span = view.to - view.from
    const actions: Record<string, () => void> = {
      ArrowRight: () => (event.shiftKey ? setView(moved(view, span / 4, whole)) : step(1)),
      ArrowLeft: () => (event.shiftKey ? setView(moved(view, -span / 4, whole)) : step(-1)),
      '+': () => setView(zoomed(view, 0.6, around(), whole)),
      '=': () => setView(zoomed(view, 0.6, around(), whole)),
      '-': () => setView(zoomed(view, 1 / 0.6, around(), whole)),
      '0': () => setView(whole),
      Home: () => step(-gantt.bars.length),
      End: () => step(gantt.bars.length),
      Enter: () => active && go(addressOf(active.call)),
      o: () => active && go(addressOf(active.call)),
    }
    const action = actions[event.key]
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    event.stopPropagation()
    action()
  }
  return (
    <div class="gantt-frame">
      <div
        ref={box}
        class="gantt"
        style={{ height: `${height}px` }}
        tabIndex={0}
        data-keys=""
        role="application"
        aria-roledescription="chart"
        aria-label={`Timeline. Left and right move between bars, plus and minus zoom, Enter opens one. ${active ? sentence(active.call, gantt.start) : ''}`}
        onKeyDown={pressed}
        onScroll={(event) => setScroll(event.currentTarget.scrollTop)}
        onMouseMove={(event) => {
          const { x, y, at } = under(event)
          setTip(at < 0 ? null : { x, y, call: gantt.bars[at]!.call })
        }}
        onMouseLeave={() => setTip(null)}
        onClick={(event) => {
          const { at } = under(event)
          if (at >= 0) choose(at)
        }}
        onDblClick={(event) => {
          const { at } = under(event)
          if (at >= 0) go(addressOf(gantt.bars[at]!.call))
        }}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <div style={{ height: `${Math.max(0, inner - height)}px` }} />
      </div>
      {tip && (
        <div class="tip" style={{ left: `${Math.min(tip.x + 12, Math.max(0, width - 330))}px`, top: `${tip.y + 14}px` }}>
          <strong>{sentence(tip.call, gantt.start)}</strong>
          <Line text={tip.call.prompt} most={160} />
        </div>
      )}
    </div>
  )
}

function Chosen({ call, start }: { call: CallRow; start: number }): JSX.Element {
  return (
    <div class="chosen" aria-live="polite">
      <p>
        <a href={addressOf(call)}>Show in its step</a>
        {call.child_run_id !== null && (
          <>
            {' · '}
            <a href={to.run(call.child_run_id)}>Open the child run</a>
          </>
        )}
        <span class="faint"> · {sentence(call, start)}</span>
      </p>
      <p>
        <Line text={call.prompt} most={200} empty="(no prompt)" />
        {(call.error !== null || call.reply !== '' || isCall(call)) && (
          <>
            {' '}
            <span class="faint">→</span> <Line text={call.error ?? call.reply} most={200} empty={call.end === null ? '(nothing yet)' : '(empty)'} />
          </>
        )}
      </p>
    </div>
  )
}

function CallTable({ gantt, chosen, choose }: { gantt: Gantt; chosen: number; choose: (at: number) => void }): JSX.Element {
  const narrow = useNarrow()
  const { bars, start } = gantt
  return (
    <Windowed
      class="call-table"
      label="The same as a list. Up and down select a row, Enter opens it"
      count={bars.length}
      rowHeight={ROW_HEIGHT}
      active={chosen}
      idOf={(at) => `bar-${at}`}
      onKeyDown={(event) => {
        const next = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: bars.length - 1 }[event.key]
        if (next !== undefined) choose(Math.max(0, Math.min(bars.length - 1, next)))
        else if (event.key === 'Enter' && bars[chosen]) go(addressOf(bars[chosen].call))
        else return
        event.preventDefault()
        event.stopPropagation()
      }}
      row={(at) => {
        const { call } = bars[at]!
        return (
          <div class={`call-row table ${at === chosen ? 'active' : ''}`} onClick={() => choose(at)} onDblClick={() => go(addressOf(call))}>
            <span class={`kind kind-${call.kind}`}>{KIND_WORDS[call.kind]}</span>
            <span class="texts">
              <Line text={call.prompt} most={140} empty={call.call_id} />
            </span>
            {!narrow && <CallFlags call={call} />}
            {!narrow && <span class="number">depth {call.depth}</span>}
            {!narrow && <span class="number">{call.tokens ? `${short(call.tokens)} tok` : ''}</span>}
            <span class="number">+{seconds(call.start - start)}</span>
            <span class="number">{call.end === null ? '…' : seconds(call.end - call.start)}</span>
          </div>
        )
      }}
    />
  )
}

export function CallsBody({ runId }: { runId: string }): JSX.Element {
  const { value, error, again } = useAsked(() => theSource().timeline(runId), `timeline ${sourceNumber.value} ${runId}`)
  const [by, setBy] = useState<'kind' | 'depth'>('kind')
  const [chosen, setChosen] = useState(-1)
  const [zoom, setZoom] = useState<View | null>(null)
  useEffect(() => {
    const reload = throttled(again, LIVE_MS)
    const heard = (): void => reload.want()
    live.listeners.add(heard)
    return () => {
      reload.stop()
      live.listeners.delete(heard)
    }
  }, [runId])
  const [hidden, setHidden] = useState<ReadonlySet<Kind>>(new Set())
  const all = useMemo(() => [...(value?.spans ?? []), ...(value?.requests ?? []), ...(value?.calls ?? [])], [value])
  const there = useMemo(() => new Set(all.map((row) => row.kind)), [all])
  const gantt = useMemo(() => laidOut(all.filter((row) => !hidden.has(row.kind)), latest(all), value ?? undefined), [all, hidden])
  const toggle = (kind: Kind): void => {
    const next = new Set(hidden)
    if (!next.delete(kind)) next.add(kind)
    setChosen(-1)
    setHidden(next)
  }
  const depths = useMemo(() => [...new Set(gantt.bars.map((bar) => bar.call.depth))].sort((a, b) => a - b), [gantt])
  if (!value) return <Waiting error={error} what="Loading the timeline" />
  if (!all.length) return <p class="empty">This run has not done anything yet.</p>
  const whole = { from: gantt.start, to: Math.max(gantt.end, gantt.start + 1e-3) }
  const view = zoom ?? whole
  const middle = (view.from + view.to) / 2
  const failed = [...value.calls, ...value.requests].filter((call) => call.error !== null).length
  return (
    <div class="calls-page">
      <div class="bar">
        <h2>Timeline</h2>
        <span class="faint">
          {plural(value.requests.length, 'request')} by the runs themselves, {plural(value.total, 'call')}
          {value.total > value.calls.length ? `, the first ${count(value.calls.length)} are shown` : ''}, at most {count(gantt.most)} at once
          {failed ? `, ${count(failed)} failed` : ''}
        </span>
        <span class="push" />
        <span class="group" role="group" aria-label="Zoom">
          <button type="button" onClick={() => setZoom(zoomed(view, 1 / 0.6, middle, whole))} aria-label="Zoom out">
            −
          </button>
          <button type="button" onClick={() => setZoom(zoomed(view, 0.6, middle, whole))} aria-label="Zoom in">
            +
          </button>
          <button type="button" disabled={zoom === null} onClick={() => setZoom(null)}>
            Fit
          </button>
        </span>
        <label>
          colour by{' '}
          <select value={by} onChange={(event) => setBy(event.currentTarget.value as 'kind' | 'depth')}>
            <option value="kind">kind</option>
            <option value="depth">depth</option>
          </select>
        </label>
      </div>
      <Kinds there={there} hidden={hidden} toggle={toggle} />
      <Chart gantt={gantt} by={by} chosen={chosen} choose={setChosen} view={view} setView={setZoom} />
      <Legend by={by} depths={depths} there={there} />
      {/* Its room is kept, so that nothing moves under a double click. */}
      {gantt.bars[chosen] ? <Chosen call={gantt.bars[chosen].call} start={gantt.start} /> : <p class="chosen-none faint">Select a bar or a row to see more of it here.</p>}
      <CallTable gantt={gantt} chosen={chosen} choose={setChosen} />
    </div>
  )
}

function latest(calls: readonly CallRow[]): number {
  return calls.reduce((end, call) => Math.max(end, call.end ?? call.start), 0)
}
