/** A run in progress: its page is loaded again as events arrive, and listeners get the events. */

import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import type { Numbered, RunPage } from '../contract'
import { connection, source, sourceNumber, theSource, viewer } from './app'
import { type Asked, throttled, useAsked } from './asked'

const RELOAD_MS = 400

class Live {
  readonly listeners = new Set<(event: Numbered) => void>()
}

export const live = new Live()

/** Whether the page goes to the newest step by itself. */
export const following = signal(true)

export function useRunPage(runId: string): Asked<RunPage> {
  const asked = useAsked(() => theSource().run(runId), `run ${sourceNumber.value} ${runId}`)
  const root = asked.value?.tree[0]
  const rootId = root?.run_id
  const isLive = (viewer.value?.live ?? false) && root?.status === 'running'
  useEffect(() => {
    if (!isLive || rootId === undefined) return
    const reload = throttled(asked.again, RELOAD_MS)
    const stop = source.value?.watchRun(rootId, {
      event(event) {
        reload.want()
        for (const listener of live.listeners) listener(event)
      },
      ended: () => void asked.again(),
      connection(state) {
        connection.value = state
      },
    })
    return () => {
      stop?.()
      reload.stop()
      connection.value = 'none'
    }
  }, [isLive, rootId, runId, sourceNumber.value])
  return asked
}
