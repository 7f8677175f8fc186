/** The source that `rlm view` is: its API over HTTP, and its server-sent events. */

import type {
  CallList,
  Connection,
  Coverage,
  EventPage,
  Hits,
  Numbered,
  RunList,
  RunPage,
  RunWatcher,
  Source,
  UsageFacts,
  ViewerFacts,
  WholeText,
} from '../contract'

const MAX_CALLS = 20_000
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 15_000

/** What the server said instead of an answer, in its own plain words. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message)
  }
}

function place(...parts: (string | number)[]): string {
  return `/api/${parts.map((part) => encodeURIComponent(String(part))).join('/')}`
}

async function answer<T>(address: string, options: RequestInit = {}): Promise<T> {
  let response: Response
  try {
    response = await fetch(address, { cache: 'no-store', ...options })
  } catch {
    throw new Refused('The server does not answer. Is rlm view still running?', 0)
  }
  const body: unknown = await response.json().catch(() => null)
  if (response.ok && body !== null) return body as T
  const told = (body as { error?: unknown } | null)?.error
  throw new Refused(typeof told === 'string' ? told : `The server answered ${response.status}.`, response.status)
}

/** The token of the address that was printed, until the server has made a cookie of it. */
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

export class HttpSource implements Source {
  viewer(): Promise<ViewerFacts> {
    const options = shown ? { headers: { Authorization: `Bearer ${shown}` } } : {}
    shown = ''
    return answer(place('viewer'), options)
  }

  runs(): Promise<RunList> {
    return answer(place('runs'))
  }

  run(runId: string): Promise<RunPage> {
    return answer(place('runs', runId))
  }

  step(runId: string, step: number, offset: number, limit: number): Promise<EventPage> {
    return answer(`${place('runs', runId, 'steps', step)}?offset=${offset}&limit=${limit}`)
  }

  text(runId: string, index: number, field: string): Promise<WholeText> {
    return answer(place('runs', runId, 'events', index, 'text', field))
  }

  calls(runId: string): Promise<CallList> {
    return answer(`${place('runs', runId, 'calls')}?limit=${MAX_CALLS}`)
  }

  usage(runId: string): Promise<UsageFacts> {
    return answer(place('runs', runId, 'usage'))
  }

  coverage(runId: string): Promise<Coverage> {
    return answer(place('runs', runId, 'coverage'))
  }

  async context(runId: string, start: number, end: number): Promise<string> {
    return (await answer<{ text: string }>(`${place('runs', runId, 'context')}?start=${start}&end=${end}`)).text
  }

  search(runId: string, words: string): Promise<Hits> {
    return answer(`${place('runs', runId, 'search')}?q=${encodeURIComponent(words)}&limit=200`)
  }

  async fork(runId: string, step: number, edited: string | null): Promise<string> {
    const body = JSON.stringify({ run_id: runId, step, edited })
    const headers = { 'Content-Type': 'application/json', 'X-RLM-Token': token() }
    return (await answer<{ run_id: string }>(place('fork'), { method: 'POST', headers, body })).run_id
  }

  watchRuns(changed: () => void, connection: (state: Connection) => void): () => void {
    return listen(place('live'), { named: { runs: changed }, connection })
  }

  watchRun(runId: string, watcher: RunWatcher): () => void {
    const stop = listen(place('runs', runId, 'live'), {
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
