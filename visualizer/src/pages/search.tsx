/** The places in a tree of runs that contain some words. */

import type { JSX } from 'preact'
import { Waiting } from '../parts/small'
import { Windowed } from '../parts/windowed'
import { theSource } from '../state/app'
import { useAsked } from '../state/asked'
import { to } from '../state/route'
import { count, plural } from '../text/format'
import { oneLine } from '../text/hostile'
import type { Hit } from '../contract'

const ROW_HEIGHT = 44
const KINDS: Readonly<Record<string, string>> = {
  model_asked: 'sent to the model',
  model_replied: 'reply',
  cell_started: 'code',
  cell_output: 'output',
  cell_ended: 'end',
  call_started: 'prompt',
  call_ended: 'reply',
  tool_called: 'tool',
  run_started: 'start',
  run_ended: 'end',
}
const PLAIN_FIELDS = new Set(['text', 'new_messages', 'code', 'prompt', 'reply'])

/** Where in its step a hit is: which text of which cell or call. */
export function placeOf(hit: Hit): string {
  const kind = KINDS[hit.type] ?? oneLine(hit.type.replace(/_/g, ' '), 40)
  const field = PLAIN_FIELDS.has(hit.field) ? kind : oneLine(hit.field.replace(/_/g, ' '), 40)
  const cell = hit.cell === null ? '' : ` of cell ${hit.cell}`
  const call = hit.call_id === null ? '' : ` of ${hit.type === 'tool_called' ? 'tool call' : 'call'} ${oneLine(hit.call_id.split('.').slice(-2).join('.'), 20)}`
  return `${hit.step === 0 ? 'start' : `step ${hit.step}`}, ${field}${cell}${call}`
}

/** The step of a hit; a call is opened there, by the number of its event. */
function addressOf(hit: Hit, words: string): string {
  const step = hit.type === 'run_started' || hit.type === 'run_ended' ? null : hit.step
  return to.hit(hit.run_id, step, hit.index, words, /^(?:call_|tool_)/.test(hit.type) ? `#${hit.index}` : null)
}

function Excerpt({ text, words }: { text: string; words: string }): JSX.Element {
  const line = oneLine(text, 260)
  const at = line.toLowerCase().indexOf(words.toLowerCase())
  if (at < 0) return <bdi class="line" dir="auto">{line}</bdi>
  return (
    <bdi class="line" dir="auto">
      {line.slice(0, at)}
      <mark>{line.slice(at, at + words.length)}</mark>
      {line.slice(at + words.length)}
    </bdi>
  )
}

export function SearchBody({ runId, words }: { runId: string; words: string }): JSX.Element {
  const { value, error } = useAsked(() => theSource().search(runId, words), `search ${runId} ${words}`)
  if (!value) return <Waiting error={error} what="Searching" />
  const { hits, more } = value
  if (!hits.length) return <p class="empty">No text contains “{oneLine(words, 80)}”.</p>
  return (
    <div class="search-page">
      <p class="faint">
        {more ? `The first ${count(hits.length)} matches` : plural(hits.length, 'match', 'matches')}
      </p>
      <Windowed
        class="hits"
        label="Matches"
        count={hits.length}
        rowHeight={ROW_HEIGHT}
        row={(at) => {
          const hit = hits[at]!
          return (
            <a class="hit" href={addressOf(hit, words)}>
              <span class="faint">
                {hit.run_id === runId ? '' : `child run ${oneLine(hit.run_id.slice(-10))}, `}
                {placeOf(hit)}
              </span>
              <Excerpt text={hit.excerpt} words={words} />
            </a>
          )
        }}
      />
    </div>
  )
}
