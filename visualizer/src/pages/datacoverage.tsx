/** What was read of data that stays on the host: a corpus by document, tables and databases by statement. */

import type { JSX } from 'preact'
import type { DataCoverage, DataDocument, DataStatement } from '../contract'
import { Table } from '../parts/usagetables'
import { Line, Words } from '../parts/words'
import { to } from '../state/route'
import { bytes, count, percent, plural } from '../text/format'

/** What a method returns, in the plural. */
const RETURNED = new Map([
  ['sql', 'rows'],
  ['rows', 'rows'],
  ['search', 'hits'],
  ['grep', 'lines'],
  ['read', 'parts'],
  ['sample', 'documents'],
  ['names', 'names'],
])

function returned(row: DataStatement): string {
  return `${count(row.returned)} ${RETURNED.get(row.method) ?? ''}`
}

function share(part: number, whole: number): string {
  return whole > 0 ? percent(Math.min(100, (100 * part) / whole)) : '–'
}

function documentRow(row: DataDocument, at: number): { key: string; cells: (JSX.Element | string)[] } {
  return {
    key: `${at}`,
    cells: [
      <Line key="n" text={row.name} most={160} empty="(no name)" />,
      count(row.found),
      count(row.matched),
      count(row.read),
      row.read ? `${bytes(row.bytes_read)} of ${row.bytes ? bytes(row.bytes) : '–'}` : '–',
      row.read ? share(row.bytes_read, row.bytes) : '–',
    ],
  }
}

function methodRow(row: DataStatement, at: number): { key: string; cells: (JSX.Element | string)[] } {
  return {
    key: `${at}`,
    cells: [<Line key="m" text={`ctx.${row.method}`} most={60} />, count(row.count), returned(row), count(row.failed)],
  }
}

function statementRow(row: DataStatement, at: number): { key: string; cells: (JSX.Element | string)[] } {
  const { key, cells } = methodRow(row, at)
  return { key, cells: [<Line key="t" text={row.text} most={300} empty="(empty)" />, ...cells] }
}

function Head({ data }: { data: DataCoverage }): JSX.Element {
  const isCorpus = data.source_documents > 0
  return (
    <p>
      <strong>
        {isCorpus
          ? `${count(data.documents_read)} of ${plural(data.source_documents, 'document')} read`
          : `${plural(data.methods.reduce((sum, each) => sum + each.count, 0), 'request')} for data`}
      </strong>
      <br />
      {isCorpus && (
        <>
          {bytes(data.bytes_read)} of {bytes(data.source_bytes)} read; {plural(data.documents_found, 'document')} found by searches,{' '}
          {count(data.documents_matched)} with lines that matched a pattern.
          <br />
        </>
      )}
      <span class="faint">
        <Words text={data.description} />
        <br />
        This is what the host gave to cells; what they did with it is in the steps.
        {data.exact ? '' : ' Not all of it could be listed: the real numbers are higher.'}
      </span>
    </p>
  )
}

export function DataCoverageBody({ data, again }: { data: DataCoverage; again: () => void }): JSX.Element {
  return (
    <div class="coverage-page data-coverage">
      <header class="coverage-head">
        {data.source_documents > 0 && <p class="big">{share(data.bytes_read, data.source_bytes)}</p>}
        <Head data={data} />
        <span class="push" />
        <button type="button" onClick={again}>
          Refresh
        </button>
      </header>
      {data.methods.length === 0 && <p class="empty">This run has not requested any of its data, or an older version recorded it.</p>}
      {data.documents.length > 0 && (
        <Table title="Documents" heads={['document', 'found', 'matched', 'read', 'bytes read', 'share']} rows={data.documents.map(documentRow)} />
      )}
      {data.more_documents > 0 && <p class="faint">and {plural(data.more_documents, 'more document')}</p>}
      {data.statements.length > 0 && (
        <Table
          title={data.sources.includes('corpus') ? 'Searches and patterns' : 'Statements'}
          heads={['text', 'method', 'requests', 'returned', 'failed']}
          rows={data.statements.map(statementRow)}
        />
      )}
      {data.more_statements > 0 && <p class="faint">and {count(data.more_statements)} more</p>}
      {data.methods.length > 0 && (
        <Table title="All requests" heads={['method', 'requests', 'returned', 'failed']} rows={data.methods.map(methodRow)} />
      )}
    </div>
  )
}

/** In place of the text of a context that has none. */
export function DataContext({ runId, description }: { runId: string; description: string }): JSX.Element {
  return (
    <div class="context-page">
      <h2>Context</h2>
      <p>
        The context is data that stays where it is: <Words text={description} />
      </p>
      <p>
        <a href={to.coverage(runId)}>What was read</a>
      </p>
    </div>
  )
}
