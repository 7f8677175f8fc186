/** The keys, on demand. */

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'

export const helping = signal(false)

const KEYS: readonly (readonly [string, readonly (readonly [string, string])[]])[] = [
  ['Everywhere', [['?', 'this help'], ['/', 'search, or filter the list'], ['g l', 'list of runs'], ['Esc', 'leave a field, or the step']]],
  ['A run', [['j k ↓ ↑', 'next and previous step'], ['o Enter', 'open'], ['t', 'tree of runs, then arrows'], ['f', 'follow the newest step'], ['g r', 'the run'], ['g c', 'calls in time'], ['g s', 'tokens and cost'], ['g u', 'coverage: what was never used']]],
  ['The list', [['j k ↓ ↑', 'next and previous run'], ['o Enter', 'open'], ['x', 'choose for comparison'], ['c', 'compare the two chosen']]],
  ['Pictures', [['← →', 'from call to call, or through the map'], ['+ − 0', 'zoom in, out, all'], ['⇧← ⇧→', 'move in time'], ['Enter', 'open the call']]],
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
      <h2 id="help-title">Keys</h2>
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
