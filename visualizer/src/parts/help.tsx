/** The keyboard shortcuts. */

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'

export const helping = signal(false)

const KEYS: readonly (readonly [string, readonly (readonly [string, string])[]])[] = [
  ['Everywhere', [['?', 'show this list'], ['/', 'search the run, or filter the list'], ['g l', 'list of runs'], ['Esc', 'leave a field or the step']]],
  ['A run', [['j k ↓ ↑', 'next and previous step'], ['o Enter', 'open'], ['t', 'tree of runs; then use the arrow keys'], ['f', 'follow the newest step'], ['g r', 'steps'], ['g c', 'timeline'], ['g x', 'context: text and who read it'], ['a', 'actions: stop, resume, delete, export, copy'], ['g s', 'tokens and cost'], ['g u', 'coverage: what was never read']]],
  ['The list', [['j k ↓ ↑', 'next and previous run'], ['o Enter', 'open'], ['Enter', 'in the field: search the texts of all runs'], ['x', 'select for comparison'], ['c', 'compare the two selected runs']]],
  ['The context', [['s', 'find words'], ['n p', 'next and previous place'], [':', 'jump to a line']]],
  ['Results', [['j k', 'next and previous sample'], ['o', 'open its run']]],
  ['Charts and maps', [['← →', 'move between calls, or through the map'], ['+ − 0', 'zoom in, zoom out, show all'], ['⇧← ⇧→', 'move in time'], ['Enter', 'open the call']]],
]

export function Help(): JSX.Element | null {
  return helping.value ? <Overlay /> : null
}

function Overlay(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  const close = (): void => {
    helping.value = false
  }
  return (
    <dialog ref={dialog} class="help" onClose={close} onClick={(event) => event.target === dialog.current && close()} aria-labelledby="help-title">
      <h2 id="help-title">Keyboard shortcuts</h2>
      <div class="help-groups">
        {KEYS.map(([group, keys]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {keys.map(([key, what]) => (
                <div key={key}>
                  <dt>
                    {key.split(' ').map((each) => (
                      <kbd key={each}>{each}</kbd>
                    ))}
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </dialog>
  )
}
