/** One cell: its code, what it wrote, what it changed, how it failed, and the calls it made. */

import type { ComponentChildren, JSX } from 'preact'
import type { Numbered } from '../contract'
import type { CellEnded, CellOutput } from '../events'
import { theSource } from '../state/app'
import { useHit } from '../state/hit'
import type { StepCell } from '../state/step'
import { count, plural, seconds } from '../text/format'
import { CallRows, Operators } from './call'
import { LongText } from './longtext'
import { Badge } from './small'
import { Words } from './words'

const MAX_VARIABLES = 60

function Output({ runId, output }: { runId: string; output: Numbered<CellOutput> }): JSX.Element {
  const kept = output.cut?.['text'] ?? output.text.length
  const lost = output.written_chars - kept
  return (
    <div class={`output output-${output.stream}`}>
      <p class="tag">{output.stream === 'stderr' ? 'stderr' : 'output'}</p>
      <LongText
        text={output.text}
        total={kept}
        load={() => theSource().text(runId, output.index, 'text')}
        label={output.stream === 'stderr' ? 'What the cell wrote to stderr' : 'What the cell printed'}
        event={output.index}
      />
      {lost > 0 && (
        <p class="notice">
          The cell wrote {count(output.written_chars)} characters; {count(lost)} of them were not kept.
        </p>
      )}
    </div>
  )
}

function Variables({ ended }: { ended: CellEnded }): JSX.Element | null {
  const named = [
    ...Object.entries(ended.new_variables ?? {}).map(([name, value]) => ({ name, value, sign: '+', word: 'new' })),
    ...Object.entries(ended.changed_variables ?? {}).map(([name, value]) => ({ name, value, sign: '~', word: 'changed' })),
  ]
  if (!named.length) return null
  return (
    <details class="variables" open={named.length <= 8}>
      <summary>
        {plural(named.length, 'new or changed variable')}
      </summary>
      <table>
        <tbody>
          {named.slice(0, MAX_VARIABLES).map(({ name, value, sign, word }) => (
            <tr key={`${sign}${name}`}>
              <td class="sign" title={word}>
                <span role="img" aria-label={word}>
                  {sign}
                </span>
              </td>
              <th scope="row">
                <Words text={name} />
              </th>
              <td>
                <Words text={String(value).slice(0, 400)} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {named.length > MAX_VARIABLES && <p class="faint">… and {count(named.length - MAX_VARIABLES)} more</p>}
    </details>
  )
}

function Failure({ runId, ended }: { runId: string; ended: Numbered<CellEnded> }): JSX.Element | null {
  const box = useHit<HTMLDivElement>(ended.index, ended)
  if (!ended.error_type && !ended.interrupted) return null
  return (
    <div class="failure" ref={box}>
      <p class="problem">
        {ended.interrupted && <strong>interrupted </strong>}
        {ended.error_type && (
          <strong>
            <Words text={ended.error_type} />
          </strong>
        )}
        {ended.error_message && (
          <>
            : <Words text={ended.error_message.slice(0, 2_000)} />
          </>
        )}
      </p>
      {ended.traceback && (
        <details>
          <summary>Traceback</summary>
          <LongText
            text={ended.traceback}
            total={ended.cut?.['traceback']}
            load={() => theSource().text(runId, ended.index, 'traceback')}
            label="Traceback"
            event={ended.index}
          />
        </details>
      )}
    </div>
  )
}

export interface CellProps {
  readonly runId: string
  readonly cell: StepCell
  readonly opened: string | null
  readonly version: number
  readonly actions?: ComponentChildren
}

export function Cell({ runId, cell, opened, version, actions }: CellProps): JSX.Element {
  const { started, ended, outputs, calls, operators } = cell
  return (
    <section class={`cell ${ended?.error_type ? 'cell-failed' : ''}`} aria-label={`Cell ${cell.number}`}>
      <header>
        <h4>Cell {cell.number}</h4>
        {ended?.submitted && <Badge kind="good">submits the answer</Badge>}
        {ended?.error_type && <Badge kind="error">failed</Badge>}
        <span class="faint">{ended ? seconds(ended.seconds) : 'running…'}</span>
        <span class="push" />
        {actions}
      </header>
      {started && (
        <LongText
          as="python"
          text={started.code}
          total={started.cut?.['code']}
          load={() => theSource().text(runId, started.index, 'code')}
          label={`Code of cell ${cell.number}`}
          first={8_000}
          event={started.index}
        />
      )}
      <Operators runId={runId} operators={operators} opened={opened} version={version} />
      {calls.length > 0 && <CallRows runId={runId} calls={calls} opened={opened} version={version} />}
      {outputs.map((output) => (
        <Output key={output.index} runId={runId} output={output} />
      ))}
      {ended && <Failure runId={runId} ended={ended} />}
      {ended && <Variables ended={ended} />}
    </section>
  )
}
