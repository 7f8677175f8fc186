/** The run and its child runs as a tree: windowed, collapsible, with the arrow keys of a tree. */

import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import type { Outline } from '../contract'
import { go, to } from '../state/route'
import { costWords, plural, seconds } from '../text/format'
import { SIGNS, standing } from './small'
import { Windowed } from './windowed'
import { Line } from './words'

const ROW_HEIGHT = 30

interface TreeRow {
  readonly run: Outline
  readonly level: number
  readonly hasChildren: boolean
}

/** The rows that are open, parents first. */
export function treeRows(tree: readonly Outline[], closed: ReadonlySet<string>): TreeRow[] {
  const known = new Set(tree.map((run) => run.run_id))
  const below = new Map<string, Outline[]>()
  const roots: Outline[] = []
  for (const run of tree) {
    if (run.parent_id !== null && run.parent_id !== run.run_id && known.has(run.parent_id)) {
      const beside = below.get(run.parent_id)
      if (beside) beside.push(run)
      else below.set(run.parent_id, [run])
    } else roots.push(run)
  }
  const rows: TreeRow[] = []
  const waiting = roots.reverse().map((run) => ({ run, level: 0 }))
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const children = below.get(next.run.run_id) ?? []
    rows.push({ ...next, hasChildren: children.length > 0 })
    if (closed.has(next.run.run_id)) continue
    for (let at = children.length - 1; at >= 0; at -= 1) waiting.push({ run: children[at]!, level: next.level + 1 })
  }
  return rows
}

export function Tree({ tree, current }: { tree: readonly Outline[]; current: string }): JSX.Element {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set())
  const rows = useMemo(() => treeRows(tree, closed), [tree, closed])
  const [focus, setFocus] = useState<string | null>(null)
  const at = Math.max(0, rows.findIndex((row) => row.run.run_id === (focus ?? current)))
  const turn = (id: string, open: boolean): void => {
    const next = new Set(closed)
    if (open) next.delete(id)
    else next.add(id)
    setClosed(next)
  }
  const move = (to: number): void => setFocus(rows[Math.max(0, Math.min(rows.length - 1, to))]?.run.run_id ?? null)
  const parentOf = (row: number): number => {
    let up = row
    while (up > 0 && rows[up]!.level >= rows[row]!.level) up -= 1
    return up
  }
  const pressed = (event: KeyboardEvent): void => {
    const row = rows[at]
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return
    const isOpen = row.hasChildren && !closed.has(row.run.run_id)
    const actions: Record<string, () => void> = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      ArrowRight: () => (row.hasChildren && !isOpen ? turn(row.run.run_id, true) : move(at + 1)),
      ArrowLeft: () => (isOpen ? turn(row.run.run_id, false) : move(parentOf(at))),
      Enter: () => go(to.run(row.run.run_id)),
      o: () => go(to.run(row.run.run_id)),
      ' ': () => row.hasChildren && turn(row.run.run_id, !isOpen),
    }
    const action = actions[event.key]
    if (!action) return
    event.preventDefault()
    event.stopPropagation()
    action()
  }
  return (
    <Windowed
      class="tree"
      role="tree"
      label="Runs of this tree"
      count={rows.length}
      rowHeight={ROW_HEIGHT}
      active={at}
      activeId={rows[at] ? `tree-${rows[at].run.run_id}` : undefined}
      onKeyDown={pressed}
      row={(number) => {
        const { run, level, hasChildren } = rows[number]!
        const isOpen = hasChildren && !closed.has(run.run_id)
        return (
          <div
            id={`tree-${run.run_id}`}
            class={`tree-row ${run.run_id === current ? 'current' : ''} ${number === at ? 'active' : ''}`}
            role="treeitem"
            aria-level={level + 1}
            aria-expanded={hasChildren ? isOpen : undefined}
            aria-selected={run.run_id === current}
            style={{ paddingLeft: `${6 + Math.min(level, 12) * 14}px` }}
          >
            <button
              type="button"
              class="plain turn"
              tabIndex={-1}
              aria-hidden={!hasChildren}
              aria-label={isOpen ? 'Close' : 'Open'}
              disabled={!hasChildren}
              onClick={() => turn(run.run_id, !isOpen)}
            >
              {hasChildren ? (isOpen ? '▾' : '▸') : '·'}
            </button>
            <a href={to.run(run.run_id)} tabIndex={-1} title={`${standing(run)}, ${plural(run.steps, 'step')}, ${seconds(run.seconds)}, ${costWords(run.cost_usd)}`}>
              <span class={`sign sign-${standing(run)}`} role="img" aria-label={standing(run)}>
                {SIGNS[standing(run)] ?? '·'}
              </span>
              <Line text={run.query} most={120} empty={run.run_id} />
            </a>
            <span class="number faint">{run.steps || ''}</span>
          </div>
        )
      }}
    />
  )
}
