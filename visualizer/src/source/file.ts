/** The source that a dropped or picked file is: no server, everything in a worker. */

import type {
  CallList,
  Coverage,
  EventPage,
  Hits,
  RunList,
  RunPage,
  Source,
  UsageFacts,
  ViewerFacts,
  WholeText,
} from '../contract'
import type { Question } from './worker'

interface Waiting {
  resolve(value: unknown): void
  reject(error: Error): void
  told?: ((share: number) => void) | undefined
}

interface Told {
  readonly id: number
  readonly share?: number
  readonly value?: unknown
  readonly error?: string
}

const NO_FORK = 'A file alone cannot go on: open the run with "rlm view".'

export class FileSource implements Source {
  private readonly worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' })
  private readonly waiting = new Map<number, Waiting>()
  private last = 0

  private constructor(private readonly name: string) {
    this.worker.onmessage = (message: MessageEvent<Told>) => this.take(message.data)
    this.worker.onerror = (event) => {
      for (const each of this.waiting.values()) each.reject(new Error(event.message || 'The file could not be read.'))
      this.waiting.clear()
    }
  }

  static async open(file: File, told: (share: number) => void): Promise<FileSource> {
    const source = new FileSource(file.name)
    await source.ask('open', [file, file.name.replace(/\.jsonl?$/i, '')], told)
    return source
  }

  private take({ id, share, value, error }: Told): void {
    const waiting = this.waiting.get(id)
    if (share !== undefined) return waiting?.told?.(share)
    this.waiting.delete(id)
    if (error === undefined) waiting?.resolve(value)
    else waiting?.reject(new Error(error))
  }

  private ask<T>(ask: Question['ask'], what: readonly unknown[] = [], told?: (share: number) => void): Promise<T> {
    this.last += 1
    const id = this.last
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: unknown) => void, reject, told })
      this.worker.postMessage({ id, ask, what } satisfies Question)
    })
  }

  close(): void {
    this.worker.terminate()
  }

  viewer(): Promise<ViewerFacts> {
    const facts = { version: '', title: this.name, can_fork: false, why_not_fork: NO_FORK, live: false }
    return Promise.resolve(facts)
  }

  runs(): Promise<RunList> {
    return this.ask('list')
  }

  run(runId: string): Promise<RunPage> {
    return this.ask('run', [runId])
  }

  step(runId: string, step: number, offset: number, limit: number): Promise<EventPage> {
    return this.ask('step', [runId, step, offset, limit])
  }

  text(runId: string, index: number, field: string): Promise<WholeText> {
    return this.ask('text', [runId, index, field])
  }

  calls(runId: string): Promise<CallList> {
    return this.ask('calls', [runId])
  }

  usage(runId: string): Promise<UsageFacts> {
    return this.ask('usage', [runId])
  }

  coverage(runId: string): Promise<Coverage> {
    return this.ask('coverage', [runId])
  }

  context(): Promise<string> {
    return Promise.reject(new Error('A log holds no context text.'))
  }

  search(runId: string, words: string): Promise<Hits> {
    return this.ask('search', [runId, words])
  }

  fork(): Promise<string> {
    return Promise.reject(new Error(NO_FORK))
  }

  watchRuns(): () => void {
    return () => {}
  }

  watchRun(): () => void {
    return () => {}
  }
}
