/** Lines of two texts, aligned. Greedy (Myers) up to a bound; beyond it, the middles count as all different. */

export interface DiffLine {
  readonly kind: 'same' | 'removed' | 'added'
  readonly text: string
}

const MAX_EDITS = 600
const MAX_LINES = 20_000

export function diff(one: string, other: string): DiffLine[] {
  const left = one.split('\n', MAX_LINES)
  const right = other.split('\n', MAX_LINES)
  let head = 0
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1
  let tail = 0
  const room = Math.min(left.length, right.length) - head
  while (tail < room && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail += 1
  return [
    ...left.slice(0, head).map(same),
    ...between(left.slice(head, left.length - tail), right.slice(head, right.length - tail)),
    ...left.slice(left.length - tail).map(same),
  ]
}

function same(text: string): DiffLine {
  return { kind: 'same', text }
}

function between(left: string[], right: string[]): DiffLine[] {
  const trace = left.length && right.length ? shortest(left, right) : null
  if (trace) return walkedBack(left, right, trace)
  return [
    ...left.map((text): DiffLine => ({ kind: 'removed', text })),
    ...right.map((text): DiffLine => ({ kind: 'added', text })),
  ]
}

/** The furthest reach of every diagonal after each number of edits; null if there are too many. */
function shortest(left: string[], right: string[]): Int32Array[] | null {
  const most = Math.min(left.length + right.length, MAX_EDITS)
  const middle = most + 1
  const reach = new Int32Array(2 * most + 3)
  const trace: Int32Array[] = []
  for (let edits = 0; edits <= most; edits += 1) {
    trace.push(reach.slice(middle - edits - 1, middle + edits + 2))
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && reach[middle + k - 1]! < reach[middle + k + 1]!)
      let x = down ? reach[middle + k + 1]! : reach[middle + k - 1]! + 1
      let y = x - k
      while (x < left.length && y < right.length && left[x] === right[y]) {
        x += 1
        y += 1
      }
      reach[middle + k] = x
      if (x >= left.length && y >= right.length) return trace
    }
  }
  return null
}

function walkedBack(left: string[], right: string[], trace: Int32Array[]): DiffLine[] {
  const found: DiffLine[] = []
  let x = left.length
  let y = right.length
  for (let edits = trace.length - 1; edits >= 0 && (x > 0 || y > 0); edits -= 1) {
    const reach = trace[edits]!
    const at = (k: number): number => reach[k + edits + 1]!
    const k = x - y
    const down = k === -edits || (k !== edits && at(k - 1) < at(k + 1))
    const from = edits === 0 ? 0 : at(down ? k + 1 : k - 1)
    const fromY = edits === 0 ? 0 : from - (down ? k + 1 : k - 1)
    while (x > from && y > fromY) {
      x -= 1
      y -= 1
      found.push(same(left[x]!))
    }
    if (edits === 0) break
    if (down) found.push({ kind: 'added', text: right[(y -= 1)]! })
    else found.push({ kind: 'removed', text: left[(x -= 1)]! })
  }
  return found.reverse()
}

/** Long stretches of equal lines, folded to a few around what differs. */
export function folded(lines: readonly DiffLine[], around = 3): (DiffLine | { readonly folded: number })[] {
  const near = new Uint8Array(lines.length)
  lines.forEach((line, at) => {
    if (line.kind === 'same') return
    for (let here = Math.max(0, at - around); here <= Math.min(lines.length - 1, at + around); here += 1) near[here] = 1
  })
  const found: (DiffLine | { readonly folded: number })[] = []
  for (let at = 0; at < lines.length; ) {
    let end = at
    while (end < lines.length && !near[end]) end += 1
    if (end - at > 1) found.push({ folded: end - at })
    else if (end > at) found.push(lines[at]!)
    at = end
    while (at < lines.length && near[at]) found.push(lines[at++]!)
  }
  return found
}
