/** Something that was asked for: on its way, there, or refused. */

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'

export interface Asked<T> {
  readonly value: T | null
  readonly error: string | null
  readonly again: () => Promise<void>
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Asks when it is first shown and whenever `key` changes; a late answer to an old question is dropped. */
export function useAsked<T>(ask: () => Promise<T>, key: string): Asked<T> {
  const [state, setState] = useState<{ key: string; value: T | null; error: string | null }>({
    key,
    value: null,
    error: null,
  })
  const latest = useRef({ ask, key })
  latest.current = { ask, key }
  const again = useCallback(async () => {
    const asked = latest.current
    try {
      const value = await asked.ask()
      if (latest.current.key === asked.key) setState({ key: asked.key, value, error: null })
    } catch (error) {
      if (latest.current.key !== asked.key) return
      setState((before) => ({ key: asked.key, value: before.key === asked.key ? before.value : null, error: wordsOf(error) }))
    }
  }, [])
  useEffect(() => {
    void again()
  }, [key, again])
  return state.key === key ? { value: state.value, error: state.error, again } : { value: null, error: null, again }
}

/** Calls `work` at most once in a while, and once more after the last time it was wanted. */
export function throttled(work: () => Promise<unknown>, pauseMs: number): { want(): void; stop(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined
  let busy = false
  let wanted = false
  let stopped = false
  const turn = async (): Promise<void> => {
    if (busy || stopped) return
    busy = true
    wanted = false
    const begun = Date.now()
    await work().catch(() => {})
    busy = false
    // Slow answers are asked for less often.
    const pause = Math.max(pauseMs, 2 * (Date.now() - begun))
    timer = setTimeout(() => {
      timer = undefined
      if (wanted) void turn()
    }, pause)
  }
  return {
    want() {
      wanted = true
      if (timer === undefined) void turn()
    },
    stop() {
      stopped = true
      clearTimeout(timer)
    },
  }
}
