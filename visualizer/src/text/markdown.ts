/**
 * The markdown that models write, as a tree of plain values. Links and raw HTML stay text: a page
 * that shows strangers' words has no use for either. One pass over the lines, no backtracking.
 */

export type Inline =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'code'; readonly text: string }
  | { readonly kind: 'strong' | 'emphasis'; readonly parts: readonly Inline[] }

export type Align = 'left' | 'right' | 'center'

export type Block =
  | { readonly kind: 'heading'; readonly level: number; readonly parts: readonly Inline[] }
  | { readonly kind: 'paragraph' | 'quote'; readonly parts: readonly Inline[] }
  | { readonly kind: 'list'; readonly ordered: boolean; readonly start: number; readonly items: readonly Item[] }
  | { readonly kind: 'fence'; readonly language: string; readonly text: string }
  | { readonly kind: 'table'; readonly align: readonly Align[]; readonly rows: readonly (readonly (readonly Inline[])[])[] }
  | { readonly kind: 'rule' }

export interface Item {
  readonly indent: number
  readonly parts: readonly Inline[]
}

const MAX_COLUMNS = 50
const MAX_NESTING = 4

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]{0,40})[^`]{0,200}$/
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/
const BULLET = /^([ \t]{0,20})(?:[-*+]|(\d{1,9})[.)])[ \t]+(.*)$/
const QUOTE = /^ {0,3}> ?(.*)$/
const DASHES = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*){0,60}\|?[ \t]*$/

export function blocks(text: string): Block[] {
  const lines = text.split('\n').map((line) => (line.endsWith('\r') ? line.slice(0, -1) : line))
  return new Reading(lines).all()
}

class Reading {
  private at = 0
  private readonly found: Block[] = []

  constructor(private readonly lines: readonly string[]) {}

  all(): Block[] {
    while (this.at < this.lines.length) this.one()
    return this.found
  }

  private line(ahead = 0): string {
    return this.lines[this.at + ahead] ?? ''
  }

  private one(): void {
    const line = this.line()
    if (line.trim() === '') {
      this.at += 1
      return
    }
    const fence = FENCE.exec(line)
    if (fence) return this.fence(fence[1] as string, fence[2] ?? '')
    const heading = HEADING.exec(line)
    if (heading) {
      this.at += 1
      const words = (heading[2] ?? '').replace(/[ \t]#+[ \t]*$/, '').trim()
      this.found.push({ kind: 'heading', level: (heading[1] as string).length, parts: inlines(words) })
    } else if (RULE.test(line)) {
      this.at += 1
      this.found.push({ kind: 'rule' })
    } else if (BULLET.test(line)) this.list()
    else if (QUOTE.test(line)) this.quote()
    else if (line.includes('|') && this.line(1).includes('|') && DASHES.test(this.line(1))) this.table()
    else this.paragraph()
  }

  private fence(mark: string, language: string): void {
    const inside: string[] = []
    this.at += 1
    for (; this.at < this.lines.length; this.at += 1) {
      const bare = this.line().trim()
      if (bare.length >= mark.length && bare === (mark[0] as string).repeat(bare.length)) {
        this.at += 1
        break
      }
      inside.push(this.line())
    }
    this.found.push({ kind: 'fence', language: language.toLowerCase(), text: inside.join('\n') })
  }

  private starts(line: string): boolean {
    return line.trim() === '' || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || BULLET.test(line)
  }

  private gather(first: string): string {
    const words = [first]
    this.at += 1
    while (this.at < this.lines.length && !this.starts(this.line()) && !QUOTE.test(this.line())) {
      words.push(this.line().trim())
      this.at += 1
    }
    return words.join('\n')
  }

  private paragraph(): void {
    this.found.push({ kind: 'paragraph', parts: inlines(this.gather(this.line().trim())) })
  }

  private quote(): void {
    const words: string[] = []
    for (let hit = QUOTE.exec(this.line()); hit && this.at < this.lines.length; hit = QUOTE.exec(this.line())) {
      words.push(hit[1] ?? '')
      this.at += 1
    }
    this.found.push({ kind: 'quote', parts: inlines(words.join('\n')) })
  }

  private list(): void {
    const items: Item[] = []
    const first = BULLET.exec(this.line())
    const ordered = first?.[2] !== undefined
    for (let hit = first; hit; hit = BULLET.exec(this.line())) {
      const width = (hit[1] ?? '').replace(/\t/g, '    ').length
      if (width < 2 && (hit[2] !== undefined) !== ordered) break
      items.push({ indent: Math.min(MAX_NESTING, Math.floor(width / 2)), parts: inlines(this.gather(hit[3] ?? '')) })
      while (this.line().trim() === '' && BULLET.test(this.line(1))) this.at += 1
    }
    this.found.push({ kind: 'list', ordered, start: Number(first?.[2] ?? 1), items })
  }

  private table(): void {
    const align = cellsOf(this.line(1)).map((dashes): Align => {
      const right = dashes.endsWith(':')
      return right && dashes.startsWith(':') ? 'center' : right ? 'right' : 'left'
    })
    const rows = [cellsOf(this.line()).map((cell) => inlines(cell))]
    for (this.at += 2; this.line().includes('|') && this.line().trim() !== ''; this.at += 1) {
      rows.push(cellsOf(this.line()).map((cell) => inlines(cell)))
    }
    this.found.push({ kind: 'table', align, rows })
  }
}

function cellsOf(line: string): string[] {
  const bare = line.trim().replace(/^\|/, '').replace(/\|$/, '')
  return bare.split('|', MAX_COLUMNS).map((cell) => cell.trim())
}

function isWord(unit: string | undefined): boolean {
  return unit !== undefined && /[\p{L}\p{N}]/u.test(unit)
}

/** Where the mark that opens at `at` closes, or -1. */
function closing(text: string, at: number, mark: string): number {
  const inside = at + mark.length
  if (/\s/.test(text[inside] ?? ' ')) return -1
  if (mark[0] === '_' && isWord(text[at - 1])) return -1
  const limit = Math.min(text.length, inside + 2_000)
  for (let end = inside + 1; end < limit; end += 1) {
    if (!text.startsWith(mark, end) || /\s/.test(text[end - 1] ?? ' ')) continue
    if (mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark)) continue
    if (mark[0] === '_' && isWord(text[end + mark.length])) continue
    return end
  }
  return -1
}

export function inlines(text: string, nesting = 0): Inline[] {
  const found: Inline[] = []
  let plain = ''
  const keep = (): void => {
    if (plain) found.push({ kind: 'text', text: plain })
    plain = ''
  }
  for (let at = 0; at < text.length; ) {
    const taken = nesting < MAX_NESTING ? special(text, at, nesting) : null
    if (taken === null) {
      plain += text[at]
      at += 1
      continue
    }
    if (typeof taken[1] === 'string') plain += taken[1]
    else {
      keep()
      found.push(taken[1])
    }
    at = taken[0]
  }
  keep()
  return found
}

function special(text: string, at: number, nesting: number): [number, Inline | string] | null {
  const unit = text[at]
  if (unit === '\\' && /[\\`*_#|[\]()~.!+-]/.test(text[at + 1] ?? '')) return [at + 2, text[at + 1] as string]
  if (unit === '`') {
    const ticks = /^`{1,20}/.exec(text.slice(at, at + 20))?.[0] ?? '`'
    const end = text.indexOf(ticks, at + ticks.length)
    if (end > 0 && text[end + ticks.length] !== '`') {
      return [end + ticks.length, { kind: 'code', text: text.slice(at + ticks.length, end) }]
    }
    return [at + ticks.length, ticks]
  }
  if (unit !== '*' && unit !== '_') return null
  for (const mark of [unit + unit, unit]) {
    if (!text.startsWith(mark, at)) continue
    const end = closing(text, at, mark)
    if (end > 0) {
      const parts = inlines(text.slice(at + mark.length, end), nesting + 1)
      return [end + mark.length, { kind: mark.length === 2 ? 'strong' : 'emphasis', parts }]
    }
    // A mark that closes nowhere is text; its second half must not be tried again.
    return [at + mark.length, mark]
  }
  return null
}
