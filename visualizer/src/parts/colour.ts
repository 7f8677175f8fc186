/** Colours of the style sheet as canvases want them. */

/** What a custom property means here and now, in the theme that is shown. */
export function colourOf(element: Element, name: string): string {
  const probe = document.createElement('span')
  probe.style.color = `var(${name})`
  element.append(probe)
  const colour = getComputedStyle(probe).color
  probe.remove()
  return colour
}

export function coloursOf<K extends string>(element: Element, names: readonly K[]): Record<K, string> {
  return Object.fromEntries(names.map((name) => [name, colourOf(element, name)])) as Record<K, string>
}

/** Makes a canvas sharp on every screen; returns its context, ready to draw in CSS pixels. */
export function sharp(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const scale = Math.min(3, devicePixelRatio || 1)
  canvas.width = Math.max(1, Math.round(width * scale))
  canvas.height = Math.max(1, Math.round(height * scale))
  canvas.style.width = `${width}px`
  canvas.style.height = `${height}px`
  const context = canvas.getContext('2d')
  context?.setTransform(scale, 0, 0, scale, 0, 0)
  return context
}

/** A distinct colour for each depth; after the last one they repeat. */
export function depthName(depth: number): `--depth-${number}` {
  return `--depth-${((depth % 6) + 6) % 6}`
}
