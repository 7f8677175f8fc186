/** Keys of the whole page. The innermost part that knows a key has it. */

import { useLayoutEffect, useRef } from 'preact/hooks'

export type Handlers = Readonly<Record<string, () => void>>

const PREFIX_MS = 1_500
const layers: { current: Handlers }[] = []
let prefix = ''
let since = 0

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  return /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable
}

function handlerOf(key: string): (() => void) | undefined {
  for (let at = layers.length - 1; at >= 0; at -= 1) {
    const found = layers[at]!.current[key]
    if (found) return found
  }
  return undefined
}

function pressed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
  if (isTyping(event.target)) {
    if (event.key === 'Escape') (event.target as HTMLElement).blur()
    return
  }
  if (document.querySelector('dialog[open]')) return
  const isOnControl = event.target instanceof Element && event.target.closest('a, button, summary, [data-keys]')
  if (event.key === 'Enter' && isOnControl) return
  const combined = prefix && Date.now() - since < PREFIX_MS ? `${prefix} ${event.key}` : event.key
  const handler = handlerOf(combined)
  prefix = ''
  if (handler) {
    event.preventDefault()
    handler()
  } else if (event.key === 'g') {
    prefix = 'g'
    since = Date.now()
  }
}

export function listenToKeys(): void {
  addEventListener('keydown', pressed)
}

/** These keys work for as long as the component is shown. */
export function useKeys(handlers: Handlers): void {
  const layer = useRef(handlers)
  layer.current = handlers
  // Not `useEffect`, which waits for the next frame: what is visible has its keys.
  useLayoutEffect(() => {
    layers.push(layer)
    return () => {
      layers.splice(layers.indexOf(layer), 1)
    }
  }, [])
}
