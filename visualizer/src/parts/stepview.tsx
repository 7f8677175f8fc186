/** One step, like a notebook: the messages, the reply, and in it the cells as they ran. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { Numbered, StepRow } from '../contract'
import type { ModelAsked, ModelReplied } from '../events'
import { theSource } from '../state/app'
import { useHit } from '../state/hit'
import { useStep } from '../state/loading'
import { costOf, type Exchange, type Notice, type StepCell, type StepModel, tokensOf } from '../state/step'
import { costWords, count, dollars, moment, plural, seconds, short } from '../text/format'
import { oneLine } from '../text/hostile'
import { parts } from '../text/reply'
import { CallRows, Operators } from './call'
import { Cell } from './cell'
import { type ForkPlan, ForkButton, NoFork } from './fork'
import { LongText } from './longtext'
import { Markdown } from './markdown'
import { Badge, Waiting } from './small'
import { Line, Words } from './words'

/** Longer replies are shown as plain text, a part at a time. */
const MAX_MARKDOWN_CHARS = 60_000
const MAX_MESSAGES = 40

function contentOf(content: unknown): string {
  return typeof content === 'string' ? content : (JSON.stringify(content, null, 2) ?? '')
}

function Asked({ runId, asked }: { runId: string; asked: Numbered<ModelAsked> }): JSX.Element {
  const shown = asked.new_messages.slice(0, MAX_MESSAGES)
  return (
    <details class="asked">
      <summary>
        Messages to the model{asked.purpose === 'step' ? '' : ` (${oneLine(asked.purpose, 60)})`}
        <span class="faint">
          {' · '}
          {count(asked.new_messages.length)} new of {count(asked.message_count)}
        </span>
      </summary>
      {shown.map((message, at) => (
        <section key={at} class="message">
          <p class="tag">{oneLine(String(message?.role ?? 'user'), 20)}</p>
          <LongText
            text={contentOf(message?.content)}
            total={asked.cut?.[`new_messages.${at}.content`]}
            load={() => theSource().text(runId, asked.index, `new_messages.${at}.content`)}
            label={`Message ${at + 1}`}
            event={asked.index}
          />
        </section>
      ))}
    </details>
  )
}

function Reasoning({ runId, replied }: { runId: string; replied: Numbered<ModelReplied> }): JSX.Element | null {
  if (!replied.reasoning) return null
  return (
    <details class="asked">
      <summary>
        Reasoning <span class="faint">{count(replied.cut?.['reasoning'] ?? replied.reasoning.length)} characters</span>
      </summary>
      <LongText
        text={replied.reasoning}
        total={replied.cut?.['reasoning']}
        load={() => theSource().text(runId, replied.index, 'reasoning')}
        label="Reasoning"
        event={replied.index}
      />
    </details>
  )
}

function ReplyFacts({ replied }: { replied: Numbered<ModelReplied> }): JSX.Element {
  const { usage } = replied
  return (
    <p class="reply-facts">
      <Words text={replied.model} />
      <span>{seconds(replied.seconds)}</span>
      {usage && (
        <span title={`${count(usage.input_tokens ?? 0)} in (${count(usage.cached_tokens ?? 0)} cached), ${count(usage.output_tokens ?? 0)} out`}>
          {count(tokensOf(usage))} tokens
        </span>
      )}
      {usage && <span>{costWords(costOf(usage))}</span>}
      {replied.purpose !== 'step' && <Badge kind="quiet">{oneLine(replied.purpose, 60)}</Badge>}
      {replied.finish_reason && replied.finish_reason !== 'stop' && <Badge kind="warn">{oneLine(replied.finish_reason, 40)}</Badge>}
      {(replied.retries ?? 0) > 0 && <Badge kind="warn">{`retried ${replied.retries}×`}</Badge>}
      {replied.stored && (
        <Badge kind="stored" title="The reply came from a cache or the journal, not from the model">
          stored
        </Badge>
      )}
    </p>
  )
}

function codesOf(model: StepModel): Map<number, string> {
  return new Map([...model.cells.values()].filter((cell) => cell.started).map((cell) => [cell.number, cell.started!.code]))
}

/** The number of a cell among cells of the same code, for finding it in the reply's text. */
function occurrenceOf(cell: StepCell, model: StepModel): number {
  const same = [...model.cells.values()].filter((each) => each.started?.code === cell.started?.code)
  return Math.max(0, same.indexOf(cell))
}

interface ReplyProps {
  readonly runId: string
  readonly step: number
  readonly model: StepModel
  readonly exchange: Exchange
  readonly opened: string | null
  readonly version: number
}

function wholeReply(runId: string, replied: Numbered<ModelReplied>): () => Promise<string> {
  return async () => (replied.cut?.['text'] ? (await theSource().text(runId, replied.index, 'text')).text : (replied.text ?? ''))
}

function planFor(runId: string, step: number, model: StepModel, cell: StepCell | null): ForkPlan | null {
  const replied = model.mainReply
  if (!replied) return null
  const started = cell?.started
  return {
    runId,
    step,
    reply: wholeReply(runId, replied),
    cell:
      cell && started
        ? {
            number: cell.number,
            code: async () =>
              started.cut?.['code'] ? (await theSource().text(runId, started.index, 'code')).text : started.code,
            occurrence: occurrenceOf(cell, model),
          }
        : null,
  }
}

interface CellOfProps {
  readonly runId: string
  readonly step: number
  readonly model: StepModel
  readonly number: number
  readonly opened: string | null
  readonly version: number
}

function CellOf({ runId, step, model, number, opened, version }: CellOfProps): JSX.Element | null {
  const cell = model.cells.get(number)
  if (!cell) return null
  const plan = cell.started && planFor(runId, step, model, cell)
  return <Cell runId={runId} cell={cell} opened={opened} version={version} actions={plan && <ForkButton plan={plan}>Edit and fork</ForkButton>} />
}

function Reply({ runId, step, model, exchange, opened, version }: ReplyProps): JSX.Element {
  const replied = exchange.replied
  const isMain = replied !== null && replied === model.mainReply
  const codes = isMain ? codesOf(model) : new Map<number, string>()
  const text = replied?.text ?? ''
  const isLong = text.length > MAX_MARKDOWN_CHARS || replied?.cut?.['text'] !== undefined
  const [raw, setRaw] = useState(false)
  const asPlain = raw || isLong
  const key = [...codes.keys()].join()
  const read = useMemo(() => (asPlain ? [] : parts(text, codes)), [text, key, asPlain])
  const placed = new Set(read.flatMap((part) => (part.kind === 'cell' ? [part.cell] : [])))
  const rest = [...codes.keys()].filter((number) => !placed.has(number))
  const shared = { runId, step, model, opened, version }
  const box = useHit<HTMLElement>(asPlain ? undefined : replied?.index, version)
  return (
    <>
      {exchange.asked && <Asked runId={runId} asked={exchange.asked} />}
      {replied && (
        <section class="reply" aria-label="Reply" ref={box}>
          <header>
            <h3>Reply</h3>
            <ReplyFacts replied={replied} />
            <span class="push" />
            {!isLong && text && (
              <button type="button" class="quiet" aria-pressed={raw} onClick={() => setRaw(!raw)}>
                {raw ? 'Show formatted' : 'Show as written'}
              </button>
            )}
          </header>
          <Reasoning runId={runId} replied={replied} />
          {replied.error != null && (
            <p class="problem">
              <Words text={replied.error} />
            </p>
          )}
          {asPlain ? (
            <LongText text={text} total={replied.cut?.['text']} load={() => theSource().text(runId, replied.index, 'text')} label="Reply as it was written" event={replied.index} />
          ) : (
            read.map((part, at) =>
              part.kind === 'words' ? <Markdown key={at} blocks={part.blocks} /> : <CellOf key={`cell${part.cell}`} {...shared} number={part.cell} />,
            )
          )}
          {!text && !replied.error && !codes.size && <p class="faint">The reply is empty.</p>}
          {rest.map((number) => (
            <CellOf key={`cell${number}`} {...shared} number={number} />
          ))}
        </section>
      )}
    </>
  )
}

function NoticeLine({ notice }: { notice: Notice }): JSX.Element {
  switch (notice.type) {
    case 'session_opened':
      return (
        <p class="notice quiet">
          Session opened in <Words text={notice.environment} /> after {seconds(notice.seconds)}
          {notice.layers.length > 0 && (
            <>
              : <Words text={notice.layers.map(String).join(', ')} />
            </>
          )}
        </p>
      )
    case 'session_lost':
      return (
        <p class="notice">
          The session was lost: <Words text={notice.reason} />{' '}
          {notice.restored ? 'It continued from its last checkpoint.' : `A new one was started${notice.lost_variables?.length ? `, without ${oneLine(notice.lost_variables.slice(0, 20).join(', '))}` : ''}.`}
        </p>
      )
    case 'compacted':
      return (
        <p class="notice">
          The conversation was compacted: {count(notice.messages_before)} messages of {short(notice.chars_before)} characters became{' '}
          {count(notice.messages_after)} of {short(notice.chars_after)}.
        </p>
      )
    case 'planned':
      return (
        <p class="notice quiet">
          Strategy <Words text={notice.strategy} />: <Words text={notice.reason} />
          {(notice.pieces ?? 0) > 0 && `; ${count(notice.pieces ?? 0)} pieces of at most ${count(notice.piece_chars ?? 0)} characters`}
          {(notice.unread ?? 0) > 0 && `, ${count(notice.unread ?? 0)} of them not read at first`}
        </p>
      )
    case 'diverged':
      return (
        <details class="notice">
          <summary>After resuming, the cells printed something other than the record shows</summary>
          <div class="two">
            <div>
              <p class="tag">recorded</p>
              <LongText text={notice.recorded} label="Recorded" />
            </div>
            <div>
              <p class="tag">now</p>
              <LongText text={notice.now} label="Now" />
            </div>
          </div>
        </details>
      )
  }
}

function StepHead({ row, step }: { row: StepRow | undefined; step: number }): JSX.Element {
  return (
    <>
      <h2>{step === 0 ? 'Before the first step' : `Step ${step}`}</h2>
      {row && (
        <p class="step-facts">
          <span title={moment(row.start)}>{seconds(row.end - row.start)}</span>
          {row.tokens > 0 && <span>{count(row.tokens)} tokens</span>}
          {row.cost_usd !== null && <span>{dollars(row.cost_usd)}</span>}
          {row.tokens !== row.own_tokens && (
            <span title="Without its child runs">
              own {count(row.own_tokens)} tokens{row.own_cost_usd !== null && `, ${dollars(row.own_cost_usd)}`}
            </span>
          )}
          {row.calls > 0 && <span>{plural(row.calls, 'call')}</span>}
          {row.failed_calls > 0 && <Badge kind="error">{`${plural(row.failed_calls, 'call')} failed`}</Badge>}
          {row.error && <Badge kind="error">error</Badge>}
          {row.stored && <Badge kind="stored">stored</Badge>}
        </p>
      )}
    </>
  )
}

export interface StepViewProps {
  readonly runId: string
  readonly step: number
  readonly row: StepRow | undefined
  readonly opened: string | null
  readonly grown: () => void
}

export function StepView({ runId, step, row, opened, grown }: StepViewProps): JSX.Element {
  const { model, loaded, total, error, isPaused, goOn } = useStep(runId, step)
  useEffect(grown, [loaded])
  const plan = step > 0 ? planFor(runId, step, model, null) : null
  const orphans = model.mainReply ? [] : [...model.cells.keys()]
  return (
    <article class="step" aria-label={`Step ${step}`}>
      <header class="step-head">
        <StepHead row={row} step={step} />
        <span class="push" />
        {plan && <ForkButton plan={plan}>Fork from here</ForkButton>}
      </header>
      {plan && <NoFork />}
      {error && <Waiting error={error} what="" />}
      {!error && loaded === 0 && total === 0 && <Waiting error={null} what="Loading the step" />}
      {model.notices.map((notice) => (
        <NoticeLine key={notice.index} notice={notice} />
      ))}
      {model.retries.map((wait) => (
        <p key={wait.attempt} class="notice">
          Attempt {wait.attempt} failed: <Words text={wait.error} /> It was sent again after {seconds(wait.seconds)}.
        </p>
      ))}
      {model.exchanges.map((exchange, at) => (
        <Reply key={at} runId={runId} step={step} model={model} exchange={exchange} opened={opened} version={loaded} />
      ))}
      {model.streamed && (
        <section class="streamed">
          <p class="tag">shown to the user</p>
          <LongText text={model.streamed} label="Shown to the user" />
        </section>
      )}
      {model.noted.map((note) => (
        <p key={note.index} class="notice quiet">
          Noted <Line text={note.key} />: <Line text={note.value} />
        </p>
      ))}
      {orphans.map((number) => (
        <CellOf key={number} runId={runId} step={step} model={model} number={number} opened={opened} version={loaded} />
      ))}
      <Operators runId={runId} operators={model.looseOperators} opened={opened} version={loaded} />
      {model.loose.length > 0 && <CallRows runId={runId} calls={model.loose} opened={opened} version={loaded} />}
      {model.ended && (
        <p class="notice quiet">
          The run ended here: {oneLine(model.ended.stop_reason, 60)}
          {model.ended.limit ? `, limit ${oneLine(model.ended.limit, 60)}` : ''}.
        </p>
      )}
      {loaded < total && (
        <p class="faint" aria-live="polite">
          {count(loaded)} of {count(total)} events loaded
          {isPaused && (
            <button type="button" onClick={goOn}>
              Load more
            </button>
          )}
        </p>
      )}
    </article>
  )
}
