/** Where runs come from: the library of `rlm view`, or a file opened there, over HTTP and server-sent events. */

import type {
  Connection,
  ContextHits,
  ContextPage,
  Coverage,
  CoverageProgress,
  EventPage,
  FoundTexts,
  Hits,
  Judgment,
  JudgmentChange,
  Numbered,
  ResultList,
  RunActions,
  RunList,
  RunPage,
  RunWatcher,
  Timeline,
  UsageFacts,
  ViewerFacts,
  WholeText,
} from './contract'
import { bytes } from './text/format'

/** Relative: the page may be served below any path. */
const API = 'api'
const MAX_CALLS = 20_000
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 15_000
const AWAY = 'The server does not answer. Is rlm view still running?'

/** The error that the server sent instead of an answer. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message)
  }
}

function errorIn(body: unknown, status: number): Refused {
  const message = (body as { error?: unknown } | null)?.error
  return new Refused(typeof message === 'string' ? message : `The server answered ${status}.`, status)
}

async function answer<T>(address: string, options: RequestInit = {}): Promise<T> {
  let response: Response
  try {
    response = await fetch(address, { cache: 'no-store', ...options })
  } catch {
    throw new Refused(AWAY, 0)
  }
  const body: unknown = await response.json().catch(() => null)
  if (response.ok && body !== null) return body as T
  throw errorIn(body, response.status)
}

/** The token of the printed address, until the server has stored it in a cookie. */
let shown = ''

/** Take the token out of the address, so that neither bookmarks nor the history keep it. */
export function takeToken(): boolean {
  const query = new URLSearchParams(location.search)
  shown = query.get('token') ?? ''
  if (!shown) return false
  query.delete('token')
  const left = query.toString()
  history.replaceState(history.state, '', `${location.pathname}${left ? `?${left}` : ''}${location.hash}`)
  return true
}

function token(): string {
  return document.querySelector<HTMLMetaElement>('meta[name="rlm-token"]')?.content ?? ''
}

/** Signs in where the page is part of a server with tokens; the page is loaded again then. */
export async function signIn(given: string): Promise<void> {
  await answer(`${API}/sign-in`, { method: 'POST', headers: { Authorization: `Bearer ${given}` } })
  location.reload()
}

export async function signOut(): Promise<void> {
  await answer(`${API}/sign-out`, { method: 'POST', headers: { 'X-RLM-Token': token() } })
  location.reload()
}

interface Handlers {
  readonly named: Readonly<Record<string, (data: string) => void>>
  connection(state: Connection): void
}

/**
 * An EventSource that does not give up: browsers go on by themselves after a broken connection,
 * but not after an answer that is no stream, such as that of a server that is starting again.
 */
function listen(address: string, handlers: Handlers): () => void {
  let source: EventSource
  let last = ''
  let pause = FIRST_PAUSE_MS
  let timer: ReturnType<typeof setTimeout> | undefined
  const open = (): void => {
    source = new EventSource(last ? `${address}?after=${encodeURIComponent(last)}` : address)
    source.onopen = () => {
      pause = FIRST_PAUSE_MS
      handlers.connection('open')
    }
    source.onerror = () => {
      handlers.connection('lost')
      if (source.readyState !== EventSource.CLOSED) return
      timer = setTimeout(open, pause)
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS)
    }
    for (const [name, take] of Object.entries(handlers.named)) {
      source.addEventListener(name, (message: MessageEvent<string>) => {
        last = message.lastEventId || last
        take(message.data)
      })
    }
  }
  open()
  return () => {
    clearTimeout(timer)
    source.close()
  }
}

/** Sends a file and returns the id that the server gives it. A file that is too large is not sent at all. */
export async function sendFile(file: File, progress: (share: number) => void, signal: AbortSignal): Promise<string> {
  const { max_bytes } = await answer<{ max_bytes: number }>(`${API}/opened`, { signal })
  if (file.size > max_bytes) {
    throw new Refused(`The file has ${bytes(file.size)}, and at most ${bytes(max_bytes)} can be opened here. Open it with: rlm view FILE`, 413)
  }
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest() // fetch does not report the progress of what it sends.
    request.open('POST', `${API}/opened?${new URLSearchParams({ name: file.name })}`)
    request.setRequestHeader('X-RLM-Token', token())
    request.responseType = 'json'
    request.upload.onprogress = ({ loaded, total }) => progress(total ? loaded / total : 0)
    request.onerror = request.onabort = () => reject(new Refused(AWAY, 0))
    request.onload = () => {
      const id = (request.response as { id?: unknown } | null)?.id
      if (request.status === 200 && typeof id === 'string') resolve(id)
      else reject(errorIn(request.response, request.status))
    }
    signal.addEventListener('abort', () => request.abort())
    request.send(file)
  })
}

/** Without the id of an opened file, the library of the viewer itself. */
export class Source {
  constructor(readonly openedId: string | null = null) {}

  private place(...parts: (string | number)[]): string {
    const opened = this.openedId === null ? [] : ['opened', this.openedId]
    return `${API}/${[...opened, ...parts].map((part) => encodeURIComponent(String(part))).join('/')}`
  }

  /** Removes the server's copy of an opened file. */
  async close(): Promise<void> {
    if (this.openedId === null) return
    await answer(this.place(), { method: 'DELETE', headers: { 'X-RLM-Token': token() }, keepalive: true })
  }

  viewer(): Promise<ViewerFacts> {
    const options = shown ? { headers: { Authorization: `Bearer ${shown}` } } : {}
    shown = ''
    return answer(this.place('viewer'), options)
  }

  runs(): Promise<RunList> {
    return answer(this.place('runs'))
  }

  run(runId: string): Promise<RunPage> {
    return answer(this.place('runs', runId))
  }

  step(runId: string, step: number, offset: number, limit: number): Promise<EventPage> {
    return answer(`${this.place('runs', runId, 'steps', step)}?offset=${offset}&limit=${limit}`)
  }

  text(runId: string, index: number, field: string): Promise<WholeText> {
    return answer(this.place('runs', runId, 'events', index, 'text', field))
  }

  timeline(runId: string): Promise<Timeline> {
    return answer(`${this.place('runs', runId, 'timeline')}?limit=${MAX_CALLS}`)
  }

  /** All code of a step. */
  async code(runId: string, step: number): Promise<string> {
    return (await answer<{ code: string }>(this.place('runs', runId, 'steps', step, 'code'))).code
  }

  usage(runId: string): Promise<UsageFacts> {
    return answer(this.place('runs', runId, 'usage'))
  }

  /** The map of large runs takes a while: `progress` is told how much of it is done, from 0 to 1. */
  async coverage(runId: string, progress: (done: number) => void = () => {}): Promise<Coverage> {
    for (;;) {
      const found = await answer<Coverage | CoverageProgress>(`${this.place('runs', runId, 'coverage')}?wait=1`)
      if (!('mapping' in found)) return found
      progress(found.mapping.done)
    }
  }

  async context(runId: string, start: number, end: number): Promise<string> {
    return (await answer<{ text: string }>(`${this.place('runs', runId, 'context')}?start=${start}&end=${end}`)).text
  }

  contextRows(runId: string, query: Readonly<Record<string, number>>): Promise<ContextPage> {
    const named = Object.entries(query).map(([name, value]) => [name, String(value)])
    return answer(`${this.place('runs', runId, 'context', 'rows')}?${new URLSearchParams(named)}`)
  }

  contextFind(runId: string, words: string, from: number): Promise<ContextHits> {
    return answer(`${this.place('runs', runId, 'context', 'find')}?q=${encodeURIComponent(words)}&from=${from}&limit=200`)
  }

  citation(runId: string, number: number): Promise<{ start: number; end: number }> {
    return answer(this.place('runs', runId, 'citations', number))
  }

  results(): Promise<ResultList> {
    return answer(this.place('results'))
  }

  actions(runId: string): Promise<RunActions> {
    return answer(this.place('runs', runId, 'actions'))
  }

  /** Stop, resume or delete a run of the viewer itself. */
  async act(runId: string, what: 'stop' | 'resume' | 'delete'): Promise<void> {
    await answer(this.place('runs', runId, what), { method: 'POST', headers: { 'X-RLM-Token': token() } })
  }

  /** Where the browser gets a run as a file. */
  exportAddress(runId: string, format: string): string {
    return this.place('runs', runId, 'export', format)
  }

  search(runId: string, words: string): Promise<Hits> {
    return answer(`${this.place('runs', runId, 'search')}?q=${encodeURIComponent(words)}&limit=200`)
  }

  /** Search the texts of all runs; `where` is a condition that the runs must fit. */
  find(words: string, where: string): Promise<FoundTexts> {
    return answer(`${this.place('search')}?${new URLSearchParams({ q: words, where, limit: '50' })}`)
  }

  judgment(runId: string): Promise<Judgment> {
    return answer(this.place('runs', runId, 'judgment'))
  }

  judge(runId: string, change: JudgmentChange): Promise<Judgment> {
    const headers = { 'Content-Type': 'application/json', 'X-RLM-Token': token() }
    return answer(this.place('runs', runId, 'judgment'), { method: 'POST', headers, body: JSON.stringify(change) })
  }

  async fork(runId: string, step: number, edited: string | null): Promise<string> {
    const body = JSON.stringify({ run_id: runId, step, edited })
    const headers = { 'Content-Type': 'application/json', 'X-RLM-Token': token() }
    return (await answer<{ run_id: string }>(`${API}/fork`, { method: 'POST', headers, body })).run_id
  }

  watchRuns(changed: () => void, connection: (state: Connection) => void): () => void {
    return listen(this.place('live'), { named: { runs: changed }, connection })
  }

  watchRun(runId: string, watcher: RunWatcher): () => void {
    const stop = listen(this.place('runs', runId, 'live'), {
      connection: (state) => watcher.connection(state),
      named: {
        rlm: (data) => watcher.event(JSON.parse(data) as Numbered),
        end: () => {
          stop()
          watcher.connection('none')
          watcher.ended()
        },
      },
    })
    return stop
  }
}
