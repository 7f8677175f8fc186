/** What all pages share: where runs come from, what the viewer may do, and the live connection. */

import { signal } from '@preact/signals'
import type { Connection, RunList, ViewerFacts } from '../contract'
import { Refused, sendFile, Source, takeToken } from '../source'
import { wordsOf } from './asked'
import { go, to } from './route'

export interface Opening {
  readonly doing: 'Copying' | 'Reading'
  readonly name: string
  /** Between 0 and 1. */
  readonly share: number
}

/** Whether a token has to be entered first. */
export const needsSignIn = signal(false)
export const source = signal<Source | null>(null)
export const viewer = signal<ViewerFacts | null>(null)
export const opening = signal<Opening | null>(null)
export const problem = signal<string | null>(null)
export const connection = signal<Connection>('none')
/** Grows with every source, so that no answer of an old one is taken for an answer of the new one. */
export const sourceNumber = signal(0)

async function use(next: Source): Promise<void> {
  const facts = await next.viewer()
  source.value = next
  viewer.value = facts
  sourceNumber.value += 1
  connection.value = 'none'
  document.title = facts.title ? `${facts.title} · rlm` : 'rlm'
  if (next.openedId === null) sessionStorage.removeItem(OPENED)
  else sessionStorage.setItem(OPENED, next.openedId)
}

/** The tab remembers these: that it has the token, and which file it shows. */
const KNOWN = 'rlm-viewer'
const OPENED = 'rlm-opened'

/** Whether files can be opened: by the server of this page, or by the one behind the development server. */
export function canOpen(): boolean {
  if (viewer.value?.can_open === false) return false
  return import.meta.env.DEV ? __HAS_SERVER__ : source.value !== null
}

/** Whether the runs of the viewer can be shown. The development server needs its printed address for that. */
function hasLibrary(): boolean {
  return !import.meta.env.DEV || (__HAS_SERVER__ && sessionStorage.getItem(KNOWN) !== null)
}

async function useLibrary(): Promise<void> {
  if (hasLibrary()) return use(new Source())
  source.value = viewer.value = null
  sourceNumber.value += 1
  document.title = 'rlm'
  sessionStorage.removeItem(OPENED)
}

/** Shows the file that this tab had open before it was loaded again; otherwise the viewer's runs. */
export async function startSource(): Promise<void> {
  if (takeToken()) sessionStorage.setItem(KNOWN, 'yes')
  const opened = sessionStorage.getItem(OPENED)
  try {
    if (opened !== null) return await use(new Source(opened))
  } catch {
    // It was closed meanwhile, or the viewer is another one.
  }
  try {
    await useLibrary()
  } catch (error) {
    if (error instanceof Refused && error.status === 401) needsSignIn.value = true
    else problem.value = wordsOf(error)
  }
}

let current = new AbortController()

export async function openFile(file: File): Promise<void> {
  problem.value = null
  if (!canOpen()) {
    problem.value = 'Files are opened by the server of rlm view, which is not running.'
    return
  }
  current.abort()
  const mine = (current = new AbortController())
  const show = (doing: Opening['doing'], share: number): void => {
    if (!mine.signal.aborted) opening.value = { doing, name: file.name, share }
  }
  try {
    show('Copying', 0)
    const next = new Source(await sendFile(file, (share) => show('Copying', share), mine.signal))
    const { runs, skipped } = await readToTheEnd(next, (share) => show('Reading', share))
    if (mine.signal.aborted) return void next.close().catch(() => {})
    const old = source.value
    await use(next)
    void old?.close().catch(() => {})
    if (!runs.length) problem.value = `${file.name} contains no runs${skipped.reasons.length ? `: ${skipped.reasons.join('; ')}` : ''}.`
    go(runs.length === 1 ? to.run(runs[0]!.run_id) : to.list())
  } catch (error) {
    if (!mine.signal.aborted) problem.value = `${file.name} could not be opened: ${wordsOf(error)}`
  } finally {
    if (!mine.signal.aborted) opening.value = null
  }
}

/** The server answers after a second at the latest, with what it has read by then. */
async function readToTheEnd(opened: Source, progress: (share: number) => void): Promise<RunList> {
  for (;;) {
    const list = await opened.runs()
    if (!list.reading) return list
    progress(list.reading.done)
  }
}

export async function closeFile(): Promise<void> {
  const old = source.value
  problem.value = null
  try {
    await useLibrary()
    go(to.list())
    await old?.close()
  } catch (error) {
    problem.value = wordsOf(error)
  }
}

/** Only for pages that are shown when there is a source. */
export function theSource(): Source {
  if (!source.value) throw new Error('Nothing is open.')
  return source.value
}
