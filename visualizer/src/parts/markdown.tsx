/** Markdown blocks as elements. Their text is only ever text. */

import type { JSX } from 'preact'
import type { Block, Inline } from '../text/markdown'
import { Python, Words } from './words'

function Inlines({ parts }: { parts: readonly Inline[] }): JSX.Element {
  return (
    <>
      {parts.map((part, at) => {
        if (part.kind === 'text') return <Words key={at} text={part.text} />
        if (part.kind === 'code') {
          return (
            <code key={at}>
              <Words text={part.text} />
            </code>
          )
        }
        const Tag = part.kind === 'strong' ? 'strong' : 'em'
        return (
          <Tag key={at}>
            <Inlines parts={part.parts} />
          </Tag>
        )
      })}
    </>
  )
}

function Table({ block }: { block: Extract<Block, { kind: 'table' }> }): JSX.Element {
  const [head = [], ...rows] = block.rows
  const side = (at: number): string => `to-${block.align[at] ?? 'left'}`
  return (
    <div class="wide">
      <table>
        <thead>
          <tr>
            {head.map((cell, at) => (
              <th key={at} class={side(at)}>
                <Inlines parts={cell} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            <tr key={number}>
              {row.map((cell, at) => (
                <td key={at} class={side(at)}>
                  <Inlines parts={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function One({ block }: { block: Block }): JSX.Element {
  switch (block.kind) {
    case 'heading':
      // The page has headings of its own; these are part of a text.
      return (
        <p class={`heading h${block.level}`} role="heading" aria-level={Math.min(6, block.level + 3)}>
          <Inlines parts={block.parts} />
        </p>
      )
    case 'paragraph':
      return (
        <p>
          <Inlines parts={block.parts} />
        </p>
      )
    case 'quote':
      return (
        <blockquote>
          <Inlines parts={block.parts} />
        </blockquote>
      )
    case 'list': {
      const items = block.items.map((item, at) => (
        <li key={at} class={`indent-${item.indent}`}>
          <Inlines parts={item.parts} />
        </li>
      ))
      return block.ordered ? <ol start={block.start}>{items}</ol> : <ul>{items}</ul>
    }
    case 'fence':
      return (
        <pre class="fence" tabIndex={0} aria-label="Code">
          {/^(?:repl|python|py|python3)$/.test(block.language) ? <Python text={block.text} /> : <Words text={block.text} />}
        </pre>
      )
    case 'table':
      return <Table block={block} />
    case 'rule':
      return <hr />
  }
}

export function Markdown({ blocks }: { blocks: readonly Block[] }): JSX.Element {
  return (
    <div class="markdown">
      {blocks.map((block, at) => (
        <One key={at} block={block} />
      ))}
    </div>
  )
}
