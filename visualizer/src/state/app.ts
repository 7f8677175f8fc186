/** What all pages share: where runs come from, what the viewer may do, and the live connection. */

import { signal } from '@preact/signals'
import type { Connection, Source, ViewerFacts } from '../contract'
import { FileSource } from '../source/file'
import { HttpSource, takeToken } from '../source/http'
import { wordsOf } from './asked'
import { go, to } from './route'

export const source = signal<Source | null>(null)
export const viewer = signal<ViewerFacts | null>(null)
export const opening = signal<{ readonly name: string; readonly share: number } | null>(null)
export const problem = signal<string | null>(null)
export const connection = signal<Connection>('none')
/** Grows with every source, so that nothing asked of an old one is taken for the new one's. */
export const sourceNumber = signal(0)

async function use(next: Source): Promise<void> {
  const facts = await next.viewer()
  const old = source.value
  source.value = next
  viewer.value = facts
  sourceNumber.value += 1
  document.title = facts.title ? `${facts.title} · rlm` : 'rlm'
  if (old instanceof FileSource) old.close()
}

const KNOWN = 'rlm-viewer'

/** Whether this tab was opened with the address that the development server printed. */
function isKnown(): boolean {
  if (takeToken()) sessionStorage.setItem(KNOWN, 'yes')
  return sessionStorage.getItem(KNOWN) !== null
}

/** The server that this page came from, if it came from one. */
export async function startSource(): Promise<void> {
  const known = isKnown()
  if (import.meta.env.DEV && !(__HAS_SERVER__ && known)) return
  try {
    await use(new HttpSource())
  } catch (error) {
    problem.value = wordsOf(error)
  }
}

export async function openFile(file: File): Promise<void> {
  opening.value = { name: file.name, share: 0 }
  problem.value = null
  try {
    const opened = await FileSource.open(file, (share) => {
      opening.value = { name: file.name, share }
    })
    const { runs, skipped } = await opened.runs()
    await use(opened)
    connection.value = 'none'
    if (!runs.length) problem.value = `${file.name} holds no run: ${skipped.reasons.join('; ') || 'it is empty'}.`
    go(runs.length === 1 ? to.run(runs[0]!.run_id) : to.list())
  } catch (error) {
    problem.value = `${file.name} could not be read: ${wordsOf(error)}`
  } finally {
    opening.value = null
  }
}

/** Only for pages that are shown when a source is there. */
export function theSource(): Source {
  if (!source.value) throw new Error('Nothing is open.')
  return source.value
}
