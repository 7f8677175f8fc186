/** Python source in coloured pieces. One pass, linear in the text; joined, the pieces are the text. */

export type PythonKind = 'plain' | 'keyword' | 'string' | 'comment' | 'number' | 'name' | 'call' | 'decorator'

export interface Token {
  readonly kind: PythonKind
  readonly text: string
}

const KEYWORDS = new Set(
  ('False None True and as assert async await break case class continue def del elif else except finally for from ' +
    'global if import in is lambda match nonlocal not or pass raise return try while with yield').split(' '),
)

const OWN = new Set(
  'context llm_query llm_query_batched rlm_query rlm_query_batched FINAL FINAL_VAR SHOW_VARS print len range'.split(' '),
)

const WORD = /[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{Nd}\p{Mn}\p{Mc}_]*/uy
const NUMBER = /(?:0[xXoObB][\da-fA-F_]{1,400}|(?:\d[\d_]{0,400})?\.?\d[\d_]{0,400}(?:[eE][+-]?\d{1,400})?[jJ]?)/y
const PREFIX = /^(?:[rbuft]|rb|br|fr|rf|tr|rt)$/i

function stringEnd(source: string, at: number): number {
  const quote = source[at] as string
  const triple = source.startsWith(quote.repeat(3), at)
  const close = triple ? quote.repeat(3) : quote
  for (let here = at + close.length; here < source.length; here += 1) {
    const unit = source[here]
    if (unit === '\\') here += 1
    else if (unit === '\n' && !triple) return here
    else if (source.startsWith(close, here)) return here + close.length
  }
  return source.length
}

function kindOfWord(word: string, source: string, end: number, before: string): PythonKind {
  if (KEYWORDS.has(word)) return 'keyword'
  if (OWN.has(word) && before !== '.') return 'name'
  return source[end] === '(' ? 'call' : 'plain'
}

function lineEnd(source: string, at: number): number {
  const end = source.indexOf('\n', at)
  return end < 0 ? source.length : end
}

/** The token that starts at `at`: where it ends and what it is. */
function next(source: string, at: number): [number, PythonKind] {
  const unit = source[at] as string
  if (unit === '#') return [lineEnd(source, at), 'comment']
  if (unit === '"' || unit === "'") return [stringEnd(source, at), 'string']
  WORD.lastIndex = at
  const word = WORD.exec(source)?.[0]
  if (word !== undefined) {
    const end = at + word.length
    if (word.length <= 2 && (source[end] === '"' || source[end] === "'") && PREFIX.test(word)) {
      return [stringEnd(source, end), 'string']
    }
    return [end, kindOfWord(word, source, end, source[at - 1] ?? '')]
  }
  NUMBER.lastIndex = at
  const number = unit >= '0' && unit <= '9' ? NUMBER.exec(source)?.[0] : undefined
  if (number) return [at + number.length, 'number']
  if (unit === '@' && /^\s*$/.test(source.slice(Math.max(0, source.lastIndexOf('\n', at - 1) + 1, at - 200), at))) {
    WORD.lastIndex = at + 1
    const name = WORD.exec(source)?.[0]
    if (name) return [at + 1 + name.length, 'decorator']
  }
  return [at + 1, 'plain']
}

export function tokens(source: string): Token[] {
  const found: Token[] = []
  let plain = 0
  for (let at = 0; at < source.length; ) {
    const [end, kind] = next(source, at)
    if (kind !== 'plain') {
      if (at > plain) found.push({ kind: 'plain', text: source.slice(plain, at) })
      found.push({ kind, text: source.slice(at, end) })
      plain = end
    }
    at = end
  }
  if (plain < source.length) found.push({ kind: 'plain', text: source.slice(plain) })
  return found
}
