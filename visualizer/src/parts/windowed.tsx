/** A list of any length of which only the rows in view exist. All rows have one height. */

import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'

const BEYOND = 6

export interface WindowedProps {
  readonly count: number
  readonly rowHeight: number
  readonly label: string
  readonly row: (at: number) => ComponentChildren
  readonly class?: string
  readonly role?: 'tree' | 'list' | 'table' | 'rowgroup'
  /** Kept in view when it changes. */
  readonly active?: number
  /** Ids of rows of which one is active: the list is then one to select from. */
  readonly idOf?: (at: number) => string
  readonly activeId?: string | undefined
  readonly onKeyDown?: ((event: KeyboardEvent) => void) | undefined
  readonly focusable?: boolean
  readonly head?: ComponentChildren
}

export function Windowed(props: WindowedProps): JSX.Element {
  const { count, rowHeight, active } = props
  const box = useRef<HTMLDivElement>(null)
  const head = useRef<HTMLDivElement>(null)
  const [view, setView] = useState({ top: 0, height: 480 })
  useEffect(() => {
    const element = box.current
    if (!element) return
    const look = (): void => {
      const top = element.scrollTop
      const height = element.clientHeight
      setView((before) => (before.top === top && before.height === height ? before : { top, height }))
    }
    const observer = new ResizeObserver(look)
    observer.observe(element)
    element.addEventListener('scroll', look, { passive: true })
    look()
    return () => {
      observer.disconnect()
      element.removeEventListener('scroll', look)
    }
  }, [])
  useLayoutEffect(() => {
    const element = box.current
    if (!element || active === undefined || active < 0) return
    const above = head.current?.offsetHeight ?? 0
    const top = active * rowHeight
    if (top < element.scrollTop) element.scrollTop = top
    else if (top + rowHeight + above > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + rowHeight + above - element.clientHeight
    }
  }, [active, rowHeight, count])
  const first = Math.max(0, Math.min(Math.floor(view.top / rowHeight) - BEYOND, count - 1))
  const last = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + BEYOND)
  const rows: JSX.Element[] = []
  for (let at = first; at < last; at += 1) {
    rows.push(
      <div
        key={at}
        id={props.idOf?.(at)}
        class="row-place"
        style={{ height: `${rowHeight}px`, transform: `translateY(${at * rowHeight}px)` }}
        role={props.role !== undefined ? 'presentation' : props.idOf ? 'option' : 'listitem'}
        aria-selected={props.idOf ? at === active : undefined}
        aria-posinset={props.idOf ? at + 1 : undefined}
        aria-setsize={props.idOf ? count : undefined}
      >
        {props.row(at)}
      </div>,
    )
  }
  return (
    <div
      ref={box}
      class={`windowed ${props.class ?? ''}`}
      role={props.role ?? (props.idOf && count > 0 ? 'listbox' : 'list')}
      aria-label={props.label}
      aria-rowcount={props.role === 'table' ? count : undefined}
      aria-activedescendant={props.idOf && active !== undefined && active >= 0 ? props.idOf(active) : props.activeId}
      tabIndex={props.focusable === false ? undefined : 0}
      data-keys={props.onKeyDown ? '' : undefined}
      onKeyDown={props.onKeyDown}
    >
      {props.head && (
        <div ref={head} class="windowed-head">
          {props.head}
        </div>
      )}
      <div class="windowed-rows" style={{ height: `${count * rowHeight}px` }} role="presentation">
        {rows}
      </div>
    </div>
  )
}

/** True while the page is narrow: rows then have two lines. */
export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia('(max-width: 760px)').matches)
  useEffect(() => {
    const media = matchMedia('(max-width: 760px)')
    const look = (): void => setNarrow(media.matches)
    media.addEventListener('change', look)
    return () => media.removeEventListener('change', look)
  }, [])
  return narrow
}
