/** The places of the context that support an answer, below it. */

import type { JSX } from 'preact'
import type { Citation, RunEnded } from '../events'
import { count } from '../text/format'
import { to } from '../state/route'
import { Words } from './words'

const MAX_CHARS = 400

/** The place in a few characters: `report.txt:12–14`. */
export function labelOf(citation: Citation): string {
  const { file, start_line: first, end_line: last } = citation
  if (file === null || file === undefined) return first === last ? `line ${first}` : `lines ${first}–${last}`
  return first === last ? `${file}:${first}` : `${file}:${first}–${last}`
}

/** The beginning of its text on one line, with a mark if that is not all. */
export function excerptOf(citation: Citation): string {
  const text = citation.text.replace(/\s+/gu, ' ').trim()
  const isCut = text.length > MAX_CHARS || (citation.cut_chars ?? 0) > 0
  return isCut ? `${text.slice(0, MAX_CHARS)} […]` : text
}

/** What is said about quotes that are not listed; empty if there are none. */
export function remarkOf(ended: Pick<RunEnded, 'unsupported_quotes' | 'omitted_citations'>): string {
  const unsupported = ended.unsupported_quotes ?? 0
  const omitted = ended.omitted_citations ?? 0
  const parts = [
    unsupported > 0 && `${count(unsupported)} not found in the context`,
    omitted > 0 && `${count(omitted)} not listed`,
  ]
  return parts.filter(Boolean).join(', ')
}

export function Citations({ runId, ended }: { runId: string; ended: RunEnded | null }): JSX.Element | null {
  const citations = Array.isArray(ended?.citations) ? ended.citations : []
  const remark = ended ? remarkOf(ended) : ''
  if (citations.length === 0 && !remark) return null
  return (
    <div class="citations">
      {citations.length > 0 && (
        <ol aria-label="Citations">
          {citations.map((citation, number) => (
            <li key={`${citation.file} ${citation.start} ${citation.end}`}>
              <a href={to.context(runId, { citation: number })} title="Open in the context">
                <strong>
                  <Words text={labelOf(citation)} />
                </strong>
              </a>{' '}
              “<Words text={excerptOf(citation)} />”
            </li>
          ))}
        </ol>
      )}
      {remark && <p class="faint">Quotes: {remark}.</p>}
    </div>
  )
}
