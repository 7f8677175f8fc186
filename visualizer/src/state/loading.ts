/** The events of one step, page after page, for as long as the step is looked at. */

import { useEffect, useRef, useState } from 'preact/hooks'
import type { Numbered } from '../contract'
import { theSource } from './app'
import { throttled, wordsOf } from './asked'
import { live } from './live'
import { StepModel } from './step'

const PAGE = 500
/** What is walked through by itself. Beyond it, the reader decides. */
const WALKED_EVENTS = 120_000
const LIVE_MS = 200

export interface LoadedStep {
  readonly model: StepModel
  readonly loaded: number
  readonly total: number
  readonly error: string | null
  readonly isPaused: boolean
  readonly goOn: () => void
}

class Walk {
  model = new StepModel()
  loaded = 0
  total = 0
  error: string | null = null
  most = WALKED_EVENTS
  stopped = false

  constructor(
    private readonly runId: string,
    private readonly step: number,
    private readonly changed: () => void,
  ) {}

  readonly reload = throttled(() => this.on(), LIVE_MS)

  /** Reads on to the end of what there is. */
  async on(): Promise<void> {
    try {
      do {
        const page = await theSource().step(this.runId, this.step, this.loaded, PAGE)
        if (this.stopped) return
        for (const event of page.events) this.model.add(event)
        this.loaded += page.events.length
        this.total = Math.max(page.total, this.loaded)
        this.error = null
        this.changed()
        if (page.events.length === 0) return
      } while (this.loaded < this.total && this.loaded < this.most)
    } catch (error) {
      this.error = wordsOf(error)
      this.changed()
    }
  }

  /** The run was begun once more: what was read is of an earlier attempt. */
  restart(): void {
    this.model = new StepModel()
    this.loaded = 0
    this.reload.want()
  }
}

export function useStep(runId: string, step: number): LoadedStep {
  const [, redraw] = useState(0)
  const walk = useRef<Walk | null>(null)
  const key = `${runId} ${step}`
  const shown = useRef('')
  if (shown.current !== key) {
    shown.current = key
    walk.current = null
  }
  useEffect(() => {
    const mine = new Walk(runId, step, () => redraw((n) => n + 1))
    walk.current = mine
    mine.reload.want()
    const heard = (event: Numbered): void => {
      if (event.run_id !== runId) return
      if (event.type === 'run_started') mine.restart()
      else if ((event.step ?? 0) === step) mine.reload.want()
    }
    live.listeners.add(heard)
    return () => {
      mine.stopped = true
      mine.reload.stop()
      live.listeners.delete(heard)
    }
  }, [key])
  const now = walk.current
  return {
    model: now?.model ?? EMPTY,
    loaded: now?.loaded ?? 0,
    total: now?.total ?? 0,
    error: now?.error ?? null,
    isPaused: now !== null && now.loaded >= now.most && now.loaded < now.total,
    goOn: () => {
      if (!now) return
      now.most += WALKED_EVENTS
      now.reload.want()
    },
  }
}

const EMPTY = new StepModel()
