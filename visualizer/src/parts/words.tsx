/** Untrusted text on the page: always text nodes, always in a direction of its own. */

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { oneLine, pieces } from '../text/hostile'
import { tokens } from '../text/python'

function marked(text: string): (string | JSX.Element)[] {
  return pieces(text).map((piece, at) =>
    typeof piece === 'string' ? (
      piece
    ) : (
      <span key={at} class="mark" title={piece.name}>
        {piece.symbol}
      </span>
    ),
  )
}

export function Words({ text }: { text: string }): JSX.Element {
  return (
    <bdi class="words" dir="auto">
      {marked(text)}
    </bdi>
  )
}

/** The beginning of a text on one line. */
export function Line({ text, most = 240, empty = '' }: { text: string; most?: number; empty?: string }): JSX.Element {
  const line = oneLine(text, most)
  return line ? (
    <bdi class="line" dir="auto" title={line}>
      {line}
    </bdi>
  ) : (
    <bdi class="line faint" dir="auto">
      {oneLine(empty, most)}
    </bdi>
  )
}

export function Python({ text }: { text: string }): JSX.Element {
  const coloured = useMemo(() => tokens(text), [text])
  return (
    <code class="python" dir="ltr">
      {coloured.map(({ kind, text: part }, at) =>
        kind === 'plain' ? (
          marked(part)
        ) : (
          <span key={at} class={`py-${kind}`}>
            {marked(part)}
          </span>
        ),
      )}
    </code>
  )
}
