/**
 * Text from strangers, made harmless to look at: what would be invisible, or would move other text,
 * becomes a mark that can be seen. Nothing here makes markup; pieces become text nodes.
 */

export interface Mark {
  readonly symbol: string
  readonly name: string
}

export type Piece = string | Mark

const NAMES: Readonly<Record<number, string>> = {
  0x00ad: 'soft hyphen',
  0x061c: 'Arabic letter mark',
  0x180e: 'Mongolian vowel separator',
  0x200b: 'zero-width space',
  0x200c: 'zero-width non-joiner',
  0x200d: 'zero-width joiner',
  0x200e: 'left-to-right mark',
  0x200f: 'right-to-left mark',
  0x2028: 'line separator',
  0x2029: 'paragraph separator',
  0x202a: 'left-to-right embedding',
  0x202b: 'right-to-left embedding',
  0x202c: 'end of embedding',
  0x202d: 'left-to-right override',
  0x202e: 'right-to-left override',
  0x2060: 'word joiner',
  0x2066: 'left-to-right isolate',
  0x2067: 'right-to-left isolate',
  0x2068: 'first strong isolate',
  0x2069: 'end of isolate',
  0xfeff: 'byte order mark',
}

const CONTROLS =
  'NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US'.split(' ')

// Everything that is looked at more closely; tabs and line feeds stay as they are.
const SUSPECT =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff]/g

const JOINERS = new Set([0x200c, 0x200d])

function hexName(code: number): string {
  return `U+${code.toString(16).toUpperCase().padStart(4, '0')}`
}

function markOf(code: number): Mark {
  // Their names, not the pictures that Unicode has for them: few fonts have those.
  const control = code === 0x7f ? 'DEL' : CONTROLS[code]
  if (control !== undefined) return { symbol: `\u27e8${control}\u27e9`, name: `control character ${hexName(code)}` }
  const surrogate = code >= 0xd800 && code <= 0xdfff
  const name = surrogate ? 'half of a surrogate pair' : (NAMES[code] ?? 'invisible character')
  return { symbol: `\u27e8${hexName(code)}\u27e9`, name: `${name}, ${hexName(code)}` }
}

/** Tag characters and the supplementary variation selectors can carry whole hidden sentences. */
function isHiddenBeyond(code: number): boolean {
  return (code >= 0xe0000 && code <= 0xe0fff) || (code >= 0x1d173 && code <= 0x1d17a)
}

function isLow(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff
}

/** How many units at `at` are a mark's: 0 means that the text there is fine. */
function suspectLength(text: string, at: number): number {
  const unit = text.charCodeAt(at)
  if (unit === 0x0d) return text.charCodeAt(at + 1) === 0x0a ? 0 : 1
  // Joiners have a place inside words of many scripts and inside emoji, not beside ASCII.
  if (JOINERS.has(unit)) return at > 0 && text.charCodeAt(at - 1) > 0x7f ? 0 : 1
  if (unit < 0xd800 || unit > 0xdfff) return 1
  if (isLow(unit) || !isLow(text.charCodeAt(at + 1))) return 1
  return isHiddenBeyond(text.codePointAt(at) ?? 0) ? 2 : 0
}

/** The text in pieces: strings to show as they are, and marks for what could not be seen. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = []
  let from = 0
  SUSPECT.lastIndex = 0
  for (let hit = SUSPECT.exec(text); hit; hit = SUSPECT.exec(text)) {
    const length = suspectLength(text, hit.index)
    if (length === 0) {
      if (isLow(text.charCodeAt(hit.index + 1))) SUSPECT.lastIndex = hit.index + 2
      continue
    }
    if (hit.index > from) found.push(text.slice(from, hit.index))
    found.push(markOf(text.codePointAt(hit.index) ?? 0))
    from = hit.index + length
    SUSPECT.lastIndex = from
  }
  if (from < text.length) found.push(text.slice(from))
  return found
}

/** The same as one string, for attributes, canvases and titles. */
export function visible(text: string): string {
  return pieces(text)
    .map((piece) => (typeof piece === 'string' ? piece : piece.symbol))
    .join('')
}

/** The beginning of a text on one line, without halving a pair. */
export function oneLine(text: string, most = 240): string {
  const short = cut(text, most)
  const line = visible(short.replace(/\s+/g, ' ').trim())
  return short.length < text.length ? `${line}…` : line
}

/** Returns at most `most` units from the start of a text, never half of a surrogate pair. */
export function cut(text: string, most: number): string {
  if (text.length <= most) return text
  const last = text.charCodeAt(most - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most)
}
