/** The calls of a step: a windowed list, and below it the selected call with its complete texts. */

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { WholeText } from '../contract'
import { theSource } from '../state/app'
import { useAsked } from '../state/asked'
import { to } from '../state/route'
import type { StepCall, StepOperator } from '../state/step'
import { count, dollars, moment, plural, seconds, short } from '../text/format'
import { LongText } from './longtext'
import { Badge, Facts, KIND_WORDS, Waiting } from './small'
import { useNarrow, Windowed } from './windowed'
import { Line, Words } from './words'

const ROW_HEIGHT = 28
const MAX_ROWS = 9

export function CallFlags({ call }: { call: Pick<StepCall, 'stored' | 'retries' | 'error'> }): JSX.Element {
  return (
    <>
      {call.error !== null && <Badge kind="error">failed</Badge>}
      {call.stored && (
        <Badge kind="stored" title="The reply came from a cache or the journal, not from the model">
          stored
        </Badge>
      )}
      {call.retries > 0 && <Badge kind="warn" title="How many times the call was sent again">{`retried ${call.retries}×`}</Badge>}
    </>
  )
}

function Whole({ runId, index, field, label, isThere }: { runId: string; index: number; field: string; label: string; isThere: boolean }): JSX.Element {
  const { value, error } = useAsked<WholeText>(
    () => (index < 0 ? Promise.resolve({ text: '' }) : theSource().text(runId, index, field)),
    `${runId} ${index} ${field}`,
  )
  return (
    <section class="whole">
      <h5>{label}</h5>
      {!isThere ? (
        <p class="faint">None yet.</p>
      ) : value ? (
        <LongText text={value.text} total={value.chars} label={label} event={index} />
      ) : (
        <Waiting error={error} what="Loading" />
      )}
    </section>
  )
}

export function CallDetail({ runId, call }: { runId: string; call: StepCall; version: number }): JSX.Element {
  const isTool = call.kind === 'tool'
  return (
    <article class="call-detail" aria-label="Selected call">
      <Facts
        facts={[
          ['kind', KIND_WORDS[call.kind]],
          [isTool ? 'tool' : 'model', <Words key="model" text={call.model} />],
          ['duration', call.seconds === null ? 'in progress' : seconds(call.seconds)],
          ...(isTool ? [] : ([['tokens', count(call.tokens)], ['cost', dollars(call.cost)], ['retries', count(call.retries)]] as const)),
          [isTool ? 'result from' : 'reply from', call.stored ? 'a cache or the journal' : isTool ? 'the tool' : 'the model'],
          ['started', moment(call.start)],
          ...(call.childRunId === null
            ? []
            : ([['child run', <a key="child" href={to.run(call.childRunId)}>open the child run</a>]] as const)),
        ]}
      />
      {call.waits.map((wait) => (
        <p key={wait.attempt} class="notice">
          Attempt {wait.attempt} failed: <Words text={wait.error} /> It was sent again after {seconds(wait.seconds)}.
        </p>
      ))}
      {call.error !== null && (
        <p class="problem">
          <Words text={call.error} />
        </p>
      )}
      <div class="two">
        {isTool ? (
          <section class="whole">
            <h5>Arguments</h5>
            <LongText text={call.prompt} label="Arguments" event={call.replyIndex} />
          </section>
        ) : (
          <Whole runId={runId} index={call.promptIndex} field="prompt" label="Prompt" isThere={call.promptIndex >= 0} />
        )}
        <Whole runId={runId} index={call.replyIndex} field={isTool ? 'result' : 'reply'} label={isTool ? 'Result' : 'Reply'} isThere={call.replyIndex >= 0} />
      </div>
      <p class="faint id">
        <Words text={call.id} />
      </p>
    </article>
  )
}

export interface OperatorsProps {
  readonly runId: string
  readonly operators: readonly StepOperator[]
  readonly opened: string | null
  readonly version: number
}

/** A row for each operator; its calls are below, and open if one of them is meant. */
export function Operators({ runId, operators, opened, version }: OperatorsProps): JSX.Element {
  return (
    <>
      {operators.map((operator) => (
        <details
          key={operator.id}
          class="operator"
          open={opened !== null && operator.calls.some((call) => isMeant(call, opened))}
        >
          <summary>
            <b>
              <Words text={operator.name} />
            </b>{' '}
            <Line text={operator.task} />
            {operator.missing > 0 && <Badge kind="warn">{`${count(operator.missing)} missing`}</Badge>}
            {operator.error !== null && <Badge kind="error">failed</Badge>}
            <span class="faint">
              {operator.seconds === null
                ? ` ${plural(operator.items, 'item')}, ${plural(operator.calls.length, 'call')} so far`
                : ` ${seconds(operator.seconds)}`}
            </span>
          </summary>
          {operator.summary && (
            <p class="faint">
              <Words text={operator.summary} />
            </p>
          )}
          {operator.error !== null && (
            <p class="problem">
              <Words text={operator.error} />
            </p>
          )}
          {operator.calls.length > 0 && <CallRows runId={runId} calls={operator.calls} opened={opened} version={version} />}
        </details>
      ))}
    </>
  )
}

export interface CallRowsProps {
  readonly runId: string
  readonly calls: readonly StepCall[]
  readonly opened: string | null
  /** Changes whenever the calls do: they grow in place. */
  readonly version: number
}

export function CallRows({ runId, calls, opened, version }: CallRowsProps): JSX.Element {
  const [at, setAt] = useState(-1)
  const [isOpen, setOpen] = useState(false)
  const narrow = useNarrow()
  const detail = useRef<HTMLDivElement>(null)
  const wanted = opened === null ? -1 : calls.findIndex((call) => isMeant(call, opened))
  useEffect(() => {
    if (wanted < 0) return
    setAt(wanted)
    setOpen(true)
    detail.current?.scrollIntoView({ block: 'nearest' })
  }, [wanted])
  const show = (number: number): void => {
    setOpen(number !== at || !isOpen)
    setAt(number)
  }
  const pressed = (event: KeyboardEvent): void => {
    const moves: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: calls.length - 1 }
    const next = moves[event.key]
    if (next !== undefined) setAt(Math.max(0, Math.min(calls.length - 1, next)))
    else if ((event.key === 'Enter' || event.key === 'o') && at >= 0) setOpen(!isOpen)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const call = calls[at]
  return (
    <div class="calls">
      <p class="calls-head">
        {plural(calls.length, 'call')}
        <span class="faint"> · {summary(calls)}</span>
      </p>
      <div class="call-box" style={{ height: `${Math.min(calls.length, MAX_ROWS) * ROW_HEIGHT + 2}px` }}>
        <Windowed
          class="call-list"
          label="Calls. Press Enter to open one"
          count={calls.length}
          rowHeight={ROW_HEIGHT}
          active={at}
          idOf={(number) => `call-${calls[number]?.id}`}
          onKeyDown={pressed}
          row={(number) => {
            const each = calls[number]!
            return (
              <div
                class={`call-row ${number === at ? 'active' : ''} ${each.error !== null ? 'failed' : ''}`}
                aria-current={number === at && isOpen}
                onClick={() => show(number)}
              >
                <span class={`kind kind-${each.kind}`}>{KIND_WORDS[each.kind]}</span>
                <span class="texts">
                  <Line text={each.prompt} most={110} empty="(empty)" />
                  <span class="faint" aria-hidden="true">
                    {' → '}
                  </span>
                  <Line text={each.error ?? each.reply} most={90} empty={each.replyIndex < 0 ? 'in progress' : '(empty)'} />
                </span>
                {!narrow && <CallFlags call={each} />}
                {!narrow && <span class="number">{each.tokens ? `${short(each.tokens)} tok` : ''}</span>}
                <span class="number">{each.seconds === null ? '…' : seconds(each.seconds)}</span>
              </div>
            )
          }}
        />
      </div>
      <div ref={detail}>{isOpen && call && <CallDetail key={call.id} runId={runId} call={call} version={version} />}</div>
    </div>
  )
}

/** A call is named by its id, or by the number of one of its events behind a #. */
function isMeant(call: StepCall, opened: string): boolean {
  if (!opened.startsWith('#')) return call.id === opened
  const index = Number(opened.slice(1))
  return call.promptIndex === index || call.replyIndex === index
}

function summary(calls: readonly StepCall[]): string {
  const stored = calls.filter((call) => call.stored).length
  const failed = calls.filter((call) => call.error !== null).length
  const tokens = calls.reduce((sum, call) => sum + call.tokens, 0)
  const parts = [
    tokens ? `${short(tokens)} tokens` : '',
    stored ? `${count(stored)} stored` : '',
    failed ? `${count(failed)} failed` : '',
  ]
  return parts.filter(Boolean).join(', ') || 'click or press Enter to open one'
}
