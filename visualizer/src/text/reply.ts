/** A reply and its cells: which fence became which cell, and a changed cell put back into the text. */

import { blocks, type Block } from './markdown'

export type ReplyPart =
  | { readonly kind: 'words'; readonly blocks: readonly Block[] }
  | { readonly kind: 'cell'; readonly cell: number }

function bare(code: string): string {
  return code.trim()
}

/**
 * The reply as it is read: words, and in their places the cells that were run. `codes` holds the
 * code by cell number. Cells that no fence is equal to are left to the caller.
 */
export function parts(text: string, codes: ReadonlyMap<number, string>): ReplyPart[] {
  const waiting = [...codes]
  const found: ReplyPart[] = []
  let words: Block[] = []
  for (const block of blocks(text)) {
    const at = block.kind === 'fence' ? waiting.findIndex(([, code]) => bare(code) === bare(block.text)) : -1
    if (at < 0) {
      words.push(block)
      continue
    }
    if (words.length) found.push({ kind: 'words', blocks: words })
    words = []
    found.push({ kind: 'cell', cell: waiting[at]![0] })
    waiting.splice(at, 1)
  }
  if (words.length) found.push({ kind: 'words', blocks: words })
  return found
}

/**
 * The whole reply with one cell's code changed: the `occurrence`-th place (from 0) where that code
 * occurs. null if it does not occur, as with cells that came as native tool calls.
 */
export function withCell(text: string, code: string, edited: string, occurrence = 0): string | null {
  const wanted = bare(code)
  if (!wanted) return null
  let at = -1
  for (let seen = 0; seen <= occurrence; seen += 1) {
    at = text.indexOf(wanted, at + 1)
    if (at < 0) return null
  }
  return text.slice(0, at) + edited.replace(/\s+$/, '') + text.slice(at + wanted.length)
}
