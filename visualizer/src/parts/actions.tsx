/** What can be done with a run: stop, resume, delete, export, copy and share. */

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Outline, RunActions } from '../contract'
import { sourceNumber, theSource } from '../state/app'
import { useAsked, wordsOf } from '../state/asked'
import { following } from '../state/live'
import { go, to } from '../state/route'
import { oneLine, visible } from '../text/hostile'

const BEGIN_TRIES = 40
const BEGIN_MS = 250

export const acting = signal<Outline | null>(null)

export function ActionsButton({ run }: { run: Outline }): JSX.Element {
  return (
    <button type="button" onClick={() => (acting.value = run)} title="Stop, resume, delete, export, copy or share (a)">
      Actions
    </button>
  )
}

export function ActionsDialog(): JSX.Element | null {
  const run = acting.value
  return run ? <Dialog key={run.run_id} run={run} /> : null
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return false // Not on a page without encryption: the text below is selected instead.
  }
}

/** Waits until a resumed run has begun again, so that its page is loaded as that of a run in progress. */
async function begun(run: Outline): Promise<void> {
  for (let tries = 0; tries < BEGIN_TRIES; tries += 1) {
    const now = (await theSource().run(run.run_id)).run
    if (now.status === 'running' || now.attempts > run.attempts) return
    await new Promise((done) => setTimeout(done, BEGIN_MS))
  }
}

function Copy({ label, text }: { label: string; text: string }): JSX.Element {
  const [said, setSaid] = useState('')
  const box = useRef<HTMLTextAreaElement>(null)
  const copy = async (): Promise<void> => {
    if (await copied(text)) return setSaid('Copied.')
    box.current?.focus()
    box.current?.select()
    setSaid('Press Ctrl-C to copy the selection.')
  }
  return (
    <div class="copy">
      <p>
        <button type="button" onClick={() => void copy()}>
          Copy as {label}
        </button>{' '}
        <span class="faint" role="status">
          {said}
        </span>
      </p>
      <textarea ref={box} readOnly rows={label === 'Python' ? 7 : 2} dir="ltr" spellcheck={false} aria-label={`This run as ${label}`} value={text} />
    </div>
  )
}

interface DoProps {
  readonly label: string
  readonly about: string
  readonly why: string | null
  readonly does: () => Promise<void>
}

function Do({ label, about, why, does }: DoProps): JSX.Element {
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState('')
  const act = async (): Promise<void> => {
    setBusy(true)
    setProblem('')
    try {
      await does()
    } catch (error) {
      setProblem(wordsOf(error))
    }
    setBusy(false)
  }
  return (
    <div class="action">
      <button type="button" disabled={why !== null || busy} onClick={() => void act()}>
        {label}
      </button>
      <span class="faint">{why === null ? about : `Not possible: ${oneLine(why, 300)}.`}</span>
      {problem && (
        <p class="problem" role="alert">
          {visible(problem)}
        </p>
      )}
    </div>
  )
}

/** Asks before a run is deleted. */
function Deletion({ run, cancel, close }: { run: Outline; cancel: () => void; close: () => void }): JSX.Element {
  const [problem, setProblem] = useState('')
  const [busy, setBusy] = useState(false)
  const remove = async (): Promise<void> => {
    setBusy(true)
    try {
      await theSource().act(run.run_id, 'delete')
      close()
      go(to.list())
    } catch (error) {
      setProblem(wordsOf(error))
      setBusy(false)
    }
  }
  return (
    <>
      <h2 id="actions-title">Delete this run?</h2>
      <p>“{oneLine(run.query, 200) || oneLine(run.run_id, 80)}”</p>
      <p>Its steps, replies and answer are deleted from this machine, as is its context if no other run uses it. This can’t be undone.</p>
      {problem && (
        <p class="problem" role="alert">
          {visible(problem)}
        </p>
      )}
      <div class="buttons">
        <button type="button" onClick={cancel}>
          Keep it
        </button>
        <button type="button" class="danger" disabled={busy} onClick={() => void remove()}>
          Delete
        </button>
      </div>
    </>
  )
}

function Choices({ run, actions, ask, close }: { run: Outline; actions: RunActions; ask: () => void; close: () => void }): JSX.Element {
  const source = theSource()
  const id = run.run_id
  return (
    <>
      <section class="actions" aria-label="This run">
        <Do
          label="Stop"
          about="It ends with its best answer so far."
          why={actions.stop}
          does={async () => {
            await source.act(id, 'stop')
            close()
          }}
        />
        <Do
          label="Resume"
          about="It continues in this viewer; replies already paid for are not requested again."
          why={actions.resume}
          does={async () => {
            await source.act(id, 'resume')
            following.value = true
            await begun(run)
            close()
            sourceNumber.value += 1
          }}
        />
        <div class="action">
          <a class="button" href={to.step(id, Math.max(1, run.steps))} onClick={close}>
            Fork
          </a>
          <span class="faint">Open a step, and press “Fork from here” there.</span>
        </div>
        <Do label="Delete…" about="Asks before it deletes anything." why={actions.delete} does={async () => ask()} />
      </section>
      <section aria-label="Files">
        <h3>Share and export</h3>
        <ul class="exports">
          <li>
            <a class="button" href={source.exportAddress(id, 'html')} download="">
              Share as one HTML file
            </a>{' '}
            <span class="faint">The file runs and loads nothing, and needs no server.</span>
          </li>
          {Object.entries(actions.formats)
            .filter(([name]) => name !== 'html')
            .map(([name, about]) => (
              <li key={name}>
                <a class="button" href={source.exportAddress(id, name)} download="">
                  {name}
                </a>{' '}
                <span class="faint">{about}</span>
              </li>
            ))}
        </ul>
      </section>
      <section aria-label="Ask the same again">
        <h3>Ask the same again</h3>
        {actions.python && <Copy label="Python" text={actions.python} />}
        {actions.command && <Copy label="command line" text={actions.command} />}
        {actions.why_not_copy !== null && <p class="faint">Not possible: {oneLine(actions.why_not_copy, 200)}.</p>}
      </section>
    </>
  )
}

function Dialog({ run }: { run: Outline }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null)
  const [asking, setAsking] = useState(false)
  const { value, error } = useAsked(() => theSource().actions(run.run_id), `actions ${sourceNumber.value} ${run.run_id}`)
  useEffect(() => dialog.current?.showModal(), [])
  const close = (): void => {
    acting.value = null
  }
  return (
    <dialog ref={dialog} class="actions-dialog" onClose={close} onClick={(event) => event.target === dialog.current && close()} aria-labelledby="actions-title">
      {asking ? (
        <Deletion run={run} cancel={() => setAsking(false)} close={close} />
      ) : (
        <>
          <h2 id="actions-title">Actions</h2>
          {value ? <Choices run={run} actions={value} ask={() => setAsking(true)} close={close} /> : <p class={error ? 'problem' : 'faint'}>{error ? visible(error) : 'Loading…'}</p>}
          <div class="buttons">
            <button type="button" onClick={close}>
              Close
            </button>
          </div>
        </>
      )}
    </dialog>
  )
}
