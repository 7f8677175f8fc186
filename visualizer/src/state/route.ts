/** The current view: the part of the address after the #, which no server gets to see. */

import { signal } from '@preact/signals'

/** A place of the context: a character (and the end of what is meant there), or a citation; else its beginning. */
export interface ContextPlace {
  readonly at: number | null
  readonly end: number | null
  readonly citation: number | null
}

export type Route =
  | { readonly page: 'list'; readonly options: string }
  | { readonly page: 'find'; readonly options: string }
  | { readonly page: 'run'; readonly runId: string; readonly step: number | null; readonly call: string | null; readonly hit: { readonly index: number; readonly words: string } | null }
  | { readonly page: 'calls' | 'usage' | 'coverage'; readonly runId: string }
  | { readonly page: 'context'; readonly runId: string; readonly place: ContextPlace }
  | { readonly page: 'results'; readonly filter: Readonly<Record<string, string>> }
  | { readonly page: 'search'; readonly runId: string; readonly words: string }
  | { readonly page: 'compare'; readonly one: string; readonly other: string }

function decoded(part: string | undefined): string {
  try {
    return decodeURIComponent(part ?? '')
  } catch {
    return part ?? ''
  }
}

function numberOf(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null
}

export function parse(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2)
  const [head, ...rest] = path.split('/')
  const [first, second, third] = rest.map(decoded)
  const options = new URLSearchParams(query)
  if (head === 'results') return { page: 'results', filter: Object.fromEntries(options) }
  if (head === 'compare' && first && second) return { page: 'compare', one: first, other: second }
  if (head !== 'run' || !first) return { page: head === 'find' ? 'find' : 'list', options: query }
  if (second === 'calls' || second === 'usage' || second === 'coverage') return { page: second, runId: first }
  if (second === 'context') {
    const [at, end, citation] = ['at', 'end', 'citation'].map((name) => numberOf(options.get(name)))
    return { page: 'context', runId: first, place: { at: at ?? null, end: end ?? null, citation: citation ?? null } }
  }
  if (second === 'search') return { page: 'search', runId: first, words: options.get('q') ?? '' }
  const step = second === 'step' && /^\d{1,9}$/.test(third ?? '') ? Number(third) : null
  const index = numberOf(options.get('hit'))
  const hit = index === null ? null : { index, words: options.get('q') ?? '' }
  return { page: 'run', runId: first, step, call: options.get('call'), hit }
}

export const route = signal<Route>(parse(typeof location === 'undefined' ? '' : location.hash))

const encode = encodeURIComponent

export const to = {
  list: (options = ''): string => `#/${options && `?${options}`}`,
  find: (options: string): string => `#/find?${options}`,
  run: (runId: string): string => `#/run/${encode(runId)}`,
  /** A text of an event, which is scrolled to and marked; `step` is null for the page of the run itself. */
  hit: (runId: string, step: number | null, index: number, words: string, call?: string | null): string =>
    `#/run/${encode(runId)}${step === null ? '' : `/step/${step}`}?${call ? `call=${encode(call)}&` : ''}hit=${index}&q=${encode(words)}`,
  step: (runId: string, step: number, call?: string | null): string =>
    `#/run/${encode(runId)}/step/${step}${call ? `?call=${encode(call)}` : ''}`,
  calls: (runId: string): string => `#/run/${encode(runId)}/calls`,
  usage: (runId: string): string => `#/run/${encode(runId)}/usage`,
  coverage: (runId: string): string => `#/run/${encode(runId)}/coverage`,
  context: (runId: string, place: Partial<ContextPlace> = {}): string => {
    const given = Object.entries(place).filter(([, value]) => value !== null && value !== undefined)
    return `#/run/${encode(runId)}/context${given.length ? `?${given.map(([name, value]) => `${name}=${value}`).join('&')}` : ''}`
  },
  results: (filter: Readonly<Record<string, string>> = {}): string => {
    const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value)).toString()
    return `#/results${query ? `?${query}` : ''}`
  },
  search: (runId: string, words: string): string => `#/run/${encode(runId)}/search?q=${encode(words)}`,
  compare: (one: string, other: string): string => `#/compare/${encode(one)}/${encode(other)}`,
}

/** Goes to a view; `replacing` adds nothing to the history, for moves that happen by themselves. */
export function go(address: string, replacing = false): void {
  if (location.hash === address) return
  if (replacing) history.replaceState(null, '', address)
  else location.hash = address
  // At once, not at the browser's event: the next key may come before it.
  arrive()
}

function arrive(): void {
  const next = parse(location.hash)
  if (JSON.stringify(next) !== JSON.stringify(route.value)) route.value = next
}

export function listenToAddress(): void {
  addEventListener('hashchange', arrive)
}
