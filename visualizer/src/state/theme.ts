/** Light, dark, or what the system says; remembered if the browser lets us. */

import { signal } from '@preact/signals'

export type Theme = 'auto' | 'light' | 'dark'

const KEY = 'rlm-theme'
const NEXT: Readonly<Record<Theme, Theme>> = { auto: 'dark', dark: 'light', light: 'auto' }

export const theme = signal<Theme>('auto')
/** Grows when colours change: pictures on canvases are drawn again. */
export const colours = signal(0)

function show(): void {
  if (theme.value === 'auto') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = theme.value
  colours.value += 1
}

export function startTheme(): void {
  try {
    const kept = localStorage.getItem(KEY)
    if (kept === 'light' || kept === 'dark') theme.value = kept
  } catch {
    // Storage may be forbidden; then the choice lasts as long as the page.
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show)
  show()
}

export function nextTheme(): void {
  theme.value = NEXT[theme.value]
  try {
    localStorage.setItem(KEY, theme.value)
  } catch {
    // As above.
  }
  show()
}
