/** Tokens and cost: over time by depth, and by model, depth and step. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { area, lastBefore, type Stack, stacked } from '../layout/usage'
import { depthName } from '../parts/colour'
import { Waiting } from '../parts/small'
import { UsageTables } from '../parts/usagetables'
import { useWidth } from '../parts/size'
import { sourceNumber, theSource } from '../state/app'
import { throttled, useAsked } from '../state/asked'
import { live } from '../state/live'
import { count, dollars, onAxis, seconds, short, ticks } from '../text/format'

const HEIGHT = 230
const LEFT = 62
const RIGHT = 14
const BOTTOM = 24
const TOP = 10
const LIVE_MS = 1_500

interface ChartProps {
  readonly title: string
  readonly unit: string
  readonly stack: Stack
  /** When the run began and ended, and what it used in all; null if that is not known. */
  readonly from: number
  readonly until: number
  readonly whole: number | null
  readonly format: (value: number) => string
}

function Chart({ title, unit, stack, from, until, whole, format }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null)
  const width = useWidth(box)
  const [hover, setHover] = useState<number | null>(null)
  const { times, tops, depths, most } = stack
  const start = Math.min(times[0] ?? from, from || Number.POSITIVE_INFINITY)
  const last = Math.max(times.at(-1) ?? 0, until, start + 1e-3)
  // What came last needs some width to be seen.
  const end = last + (last - start) * 0.02
  const inner = Math.max(10, width - LEFT - RIGHT)
  const marks = ticks(most || 1, 4)
  const top = Math.max(most, marks.at(-1) ?? 1) || 1
  const x = (time: number): number => LEFT + ((time - start) / (end - start)) * inner
  const y = (value: number): number => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP)
  const at = hover === null ? times.length - 1 : Math.max(0, lastBefore(times, hover))
  const move = (event: MouseEvent): void => {
    const place = event.clientX - (box.current?.getBoundingClientRect().left ?? 0)
    setHover(start + ((place - LEFT) / inner) * (end - start))
  }
  const pressed = (event: KeyboardEvent): void => {
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: times.length - 1 }[event.key]
    if (next === undefined) return
    event.preventDefault()
    event.stopPropagation()
    setHover(times[Math.max(0, Math.min(times.length - 1, next))] ?? null)
  }
  const along = ticks(end - start, Math.max(2, inner / 120))
  const longer = [...times, end]
  const held = (values: readonly number[]): number[] => [...values, values.at(-1) ?? 0]
  const values = depths.map((depth, number) => ({
    depth,
    value: (tops[number]?.[at] ?? 0) - (number > 0 ? (tops[number - 1]?.[at] ?? 0) : 0),
  }))
  const reported = tops.at(-1)?.[at] ?? 0
  const total = hover === null ? Math.max(reported, whole ?? 0) : reported
  const moment = hover === null ? last : (times[at] ?? start)
  const isComplete = stack.isComplete && (hover !== null || whole !== null)
  return (
    <section class="usage-chart">
      <h2>
        {title}
        <span class="total">
          {format(total)}
          {isComplete ? '' : ' or more'}
        </span>
        <span class="faint">{times.length ? ` after ${seconds(moment - start)}` : ''}</span>
      </h2>
      <div
        ref={box}
        class="plot"
        tabIndex={0}
        data-keys=""
        role="img"
        aria-label={`${title}, cumulative: ${values.map(({ depth, value }) => `depth ${depth} ${format(value)}`).join(', ')}`}
        onKeyDown={pressed}
        onMouseMove={move}
        onMouseLeave={() => setHover(null)}
      >
        {width > 0 && (
          <svg width={width} height={HEIGHT} aria-hidden="true">
            {marks.map((mark) => (
              <g key={mark}>
                <line x1={LEFT} x2={width - RIGHT} y1={y(mark)} y2={y(mark)} class="grid" />
                <text x={LEFT - 8} y={y(mark)} class="tick right">
                  {mark === 0 ? '0' : format(mark)}
                </text>
              </g>
            ))}
            {along.map((mark) => (
              <text key={mark} x={x(start + mark)} y={HEIGHT - 8} class={`tick ${mark === 0 ? 'left' : 'middle'}`}>
                {onAxis(mark, along[1] ?? 1)}
              </text>
            ))}
            {depths.map((depth, number) => (
              <path
                key={depth}
                d={area(longer, held(tops[number]!), number > 0 ? held(tops[number - 1]!) : null, x, y)}
                fill={`var(${depthName(depth)})`}
                class="area"
              />
            ))}
            {hover !== null && times.length > 0 && <line class="cross" x1={x(times[at]!)} x2={x(times[at]!)} y1={TOP} y2={HEIGHT - BOTTOM} />}
          </svg>
        )}
      </div>
      <p class="hidden">Vertical: {unit}. Horizontal: time since the run began.</p>
      <ul class="legend">
        {values.map(({ depth, value }) => (
          <li key={depth}>
            <span class="swatch" style={{ background: `var(${depthName(depth)})` }} aria-hidden="true" />
            depth {depth} <b>{format(value)}</b>
          </li>
        ))}
      </ul>
    </section>
  )
}

export function UsageBody({ runId }: { runId: string }): JSX.Element {
  const { value, error, again } = useAsked(() => theSource().usage(runId), `usage ${sourceNumber.value} ${runId}`)
  useEffect(() => {
    const reload = throttled(again, LIVE_MS)
    const heard = (): void => reload.want()
    live.listeners.add(heard)
    return () => {
      reload.stop()
      live.listeners.delete(heard)
    }
  }, [runId])
  const tokens = useMemo(() => stacked(value?.points ?? [], 'tokens'), [value])
  const cost = useMemo(() => stacked(value?.points ?? [], 'cost_usd'), [value])
  if (!value) return <Waiting error={error} what="Loading usage" />
  if (!value.points.length) return <p class="empty">No usage yet, or this log does not record it.</p>
  const span = { from: value.start, until: value.end }
  return (
    <div class="usage-page">
      <Chart title="Tokens" unit="tokens" stack={tokens} {...span} whole={value.tokens} format={(amount) => (amount < 10_000 ? count(amount) : short(amount))} />
      {cost.most > 0 ? (
        <Chart title="Cost" unit="US dollars" stack={cost} {...span} whole={value.cost_usd} format={dollars} />
      ) : (
        <p class="faint">The cost is unknown: there are no prices for these models.</p>
      )}
      <UsageTables runId={runId} usage={value} />
    </div>
  )
}
