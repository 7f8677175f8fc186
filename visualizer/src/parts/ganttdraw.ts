/** The picture of concurrent calls, drawn on a canvas. What is under a pixel wide still shows. */

import type { CallRow } from '../contract'
import type { Bar, Gantt, View } from '../layout/gantt'
import { onAxis, ticks } from '../text/format'
import { oneLine } from '../text/hostile'
import { coloursOf, depthName, sharp } from './colour'

export const AXIS_HEIGHT = 22

export interface Picture {
  readonly gantt: Gantt
  readonly view: View
  readonly laneHeight: number
  readonly by: 'kind' | 'depth'
  readonly chosen: CallRow | null
  readonly width: number
  readonly height: number
  readonly scroll: number
}

const NAMES = [
  '--text', '--faint', '--line', '--surface', '--error', '--focus', '--on-bar', '--kind-llm', '--kind-rlm', '--kind-tool', '--kind-request', '--kind-step', '--kind-cell', '--kind-operator', '--kind-run',
  '--depth-0', '--depth-1', '--depth-2', '--depth-3', '--depth-4', '--depth-5',
] as const

type Colours = Record<(typeof NAMES)[number], string>

function hatch(context: CanvasRenderingContext2D, colour: string, lines: 'slanted' | 'upright'): CanvasPattern | string {
  const tile = document.createElement('canvas')
  tile.width = 6
  tile.height = 6
  const inside = tile.getContext('2d')
  if (!inside) return colour
  inside.strokeStyle = colour
  inside.lineWidth = 1.6
  inside.beginPath()
  if (lines === 'slanted') {
    inside.moveTo(-1, 7)
    inside.lineTo(7, -1)
    inside.moveTo(-1, 1)
    inside.lineTo(1, -1)
    inside.moveTo(5, 7)
    inside.lineTo(7, 5)
  } else {
    inside.moveTo(3, 0)
    inside.lineTo(3, 6)
  }
  inside.stroke()
  return context.createPattern(tile, 'repeat') ?? colour
}

export function draw(canvas: HTMLCanvasElement, picture: Picture): void {
  const context = sharp(canvas, picture.width, picture.height)
  if (!context) return
  const colours = coloursOf(canvas.parentElement ?? canvas, NAMES)
  axis(context, picture, colours)
  context.save()
  context.beginPath()
  context.rect(0, AXIS_HEIGHT, picture.width, picture.height - AXIS_HEIGHT)
  context.clip()
  bars(context, picture, colours)
  context.restore()
}

function scale({ view, width }: Picture): (time: number) => number {
  const span = Math.max(view.to - view.from, 1e-9)
  return (time) => ((time - view.from) / span) * width
}

function axis(context: CanvasRenderingContext2D, picture: Picture, colours: Colours): void {
  const { view, gantt, width, height } = picture
  const x = scale(picture)
  const step = ticks(view.to - view.from, Math.max(2, width / 110))[1] ?? view.to - view.from
  context.font = '11px system-ui, sans-serif'
  context.textBaseline = 'middle'
  const first = Math.ceil((view.from - gantt.start) / step - 1e-9)
  for (let at = first; at < first + 60; at += 1) {
    const time = gantt.start + at * step
    if (time > view.to || !(step > 0)) break
    const place = Math.round(x(time)) + 0.5
    context.strokeStyle = colours['--line']
    context.beginPath()
    context.moveTo(place, AXIS_HEIGHT - 4)
    context.lineTo(place, height)
    context.stroke()
    context.fillStyle = colours['--faint']
    const label = onAxis(at * step, step)
    context.textAlign = place < 20 ? 'left' : place > width - 30 ? 'right' : 'center'
    context.fillText(label, place, 9)
  }
}

function bars(context: CanvasRenderingContext2D, picture: Picture, colours: Colours): void {
  const x = scale(picture)
  const hatches = {
    llm: null,
    request: null,
    step: null,
    cell: null,
    operator: null,
    run: hatch(context, colours['--surface'], 'slanted'),
    rlm: hatch(context, colours['--surface'], 'slanted'),
    tool: hatch(context, colours['--surface'], 'upright'),
  }
  let chosen: Bar | null = null
  for (const bar of picture.gantt.bars) {
    if (bar.end < picture.view.from || bar.start > picture.view.to) continue
    const top = AXIS_HEIGHT + bar.lane * picture.laneHeight - picture.scroll
    if (top + picture.laneHeight < AXIS_HEIGHT || top > picture.height) continue
    if (picture.chosen && bar.call.call_id === picture.chosen.call_id && bar.call.run_id === picture.chosen.run_id) chosen = bar
    one(context, bar, x, top, picture, colours, hatches[bar.call.kind])
  }
  if (chosen) {
    const left = x(chosen.start)
    const top = AXIS_HEIGHT + chosen.lane * picture.laneHeight - picture.scroll
    context.strokeStyle = colours['--focus']
    context.lineWidth = 2
    context.strokeRect(left - 2, top - 1, Math.max(2, x(chosen.end) - left) + 4, Math.max(4, picture.laneHeight + 1))
  }
}

function one(
  context: CanvasRenderingContext2D,
  bar: Bar,
  x: (time: number) => number,
  top: number,
  picture: Picture,
  colours: Colours,
  pattern: CanvasPattern | string | null,
): void {
  const { call } = bar
  const left = Math.max(-4, x(bar.start))
  const width = Math.max(1.5, Math.min(picture.width + 4, x(bar.end)) - left)
  const height = Math.max(1, picture.laneHeight - (picture.laneHeight > 5 ? 2 : 0.5))
  const colour = picture.by === 'kind' ? colours[`--kind-${call.kind}`] : colours[depthName(call.depth) as keyof Colours]
  const isWide = width > 4 && height > 4
  if (call.stored && isWide) {
    context.strokeStyle = colour
    context.lineWidth = 1.2
    context.strokeRect(left + 0.6, top + 0.6, width - 1.2, height - 1.2)
  } else {
    context.fillStyle = colour
    // Too small to be hollow, it is pale.
    context.globalAlpha = call.stored ? 0.45 : 1
    context.fillRect(left, top, width, height)
    context.globalAlpha = 1
    if (pattern && isWide) {
      context.fillStyle = pattern
      context.globalAlpha = 0.55
      context.fillRect(left, top, width, height)
      context.globalAlpha = 1
    }
  }
  if (call.error !== null) {
    context.fillStyle = colours['--error']
    context.fillRect(left + width - Math.min(4, width), top, Math.min(4, width), height)
  }
  if (width > 46 && height >= 11) label(context, call, left, top, width, height, picture, colours)
}

function label(
  context: CanvasRenderingContext2D,
  call: CallRow,
  left: number,
  top: number,
  width: number,
  height: number,
  picture: Picture,
  colours: Colours,
): void {
  const from = Math.max(left, 0)
  const room = left + width - from - 8
  if (room < 30) return
  const words = `${picture.by === 'depth' ? `${call.depth} · ` : ''}${oneLine(call.prompt || call.model, 80)}`
  context.save()
  context.beginPath()
  context.rect(from + 3, top, room, height)
  context.clip()
  context.fillStyle = call.stored ? colours['--text'] : colours['--on-bar']
  context.font = `${Math.min(11, height - 2)}px system-ui, sans-serif`
  context.textAlign = 'left'
  context.textBaseline = 'middle'
  context.fillText(words, from + 4, top + height / 2 + 0.5)
  context.restore()
}
