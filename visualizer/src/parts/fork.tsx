/** Fork from here: edit a reply or one of its cells, and a new run continues from it. */

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { theSource, viewer } from '../state/app'
import { wordsOf } from '../state/asked'
import { following } from '../state/live'
import { go, to } from '../state/route'
import { withCell } from '../text/reply'
import { visible } from '../text/hostile'

export interface ForkPlan {
  readonly runId: string
  readonly step: number
  /** Returns the complete reply, also if the events have it shortened. */
  readonly reply: () => Promise<string>
  /** For one cell: its code and its number among equals. */
  readonly cell: { readonly number: number; readonly code: () => Promise<string>; readonly occurrence: number } | null
}

export const forking = signal<ForkPlan | null>(null)

export function ForkButton({ plan, children }: { plan: ForkPlan; children: string }): JSX.Element {
  const facts = viewer.value
  const can = facts?.can_fork ?? false
  const why = can ? 'A new run continues from here with your text' : (facts?.why_not_fork ?? "This viewer can't fork runs.")
  return (
    <button type="button" class="fork" disabled={!can} title={visible(why)} onClick={() => (forking.value = plan)}>
      {children}
    </button>
  )
}

/** Why forking is not available, for those who can't see the tooltip of the button. */
export function NoFork(): JSX.Element | null {
  const facts = viewer.value
  if (!facts || facts.can_fork) return null
  return <p class="faint no-fork">Forking is not available: {visible(facts.why_not_fork ?? "this viewer can't fork runs")}.</p>
}

interface Texts {
  readonly reply: string
  readonly edited: string
}

async function textsOf(plan: ForkPlan): Promise<Texts> {
  const reply = await plan.reply()
  return { reply, edited: plan.cell ? await plan.cell.code() : reply }
}

export function ForkDialog(): JSX.Element | null {
  const plan = forking.value
  return plan ? <Editor plan={plan} /> : null
}

function Editor({ plan }: { plan: ForkPlan }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null)
  const [texts, setTexts] = useState<Texts | null>(null)
  const [edited, setEdited] = useState('')
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(false)
  useEffect(() => {
    dialog.current?.showModal()
    textsOf(plan).then(
      (found) => {
        setTexts(found)
        setEdited(found.edited)
      },
      (failure: unknown) => setError(wordsOf(failure)),
    )
  }, [plan])
  const close = (): void => {
    forking.value = null
  }
  const send = async (): Promise<void> => {
    if (!texts) return
    const cell = plan.cell
    const whole = cell ? withCell(texts.reply, texts.edited, edited, cell.occurrence) : edited
    if (whole === null) {
      setError('The code of this cell is not in the text of the reply; edit the whole reply instead.')
      return
    }
    setBusy(true)
    try {
      const runId = await theSource().fork(plan.runId, plan.step, whole === texts.reply ? null : whole)
      following.value = true
      close()
      go(to.run(runId))
    } catch (failure) {
      setError(wordsOf(failure))
      setBusy(false)
    }
  }
  const what = plan.cell ? `cell ${plan.cell.number} of step ${plan.step}` : `the reply of step ${plan.step}`
  return (
    <dialog ref={dialog} class="editor" onClose={close} aria-labelledby="fork-title">
      <h2 id="fork-title">Edit {what} and fork</h2>
      <p class="faint">
        Everything before this step stays as it was recorded and costs nothing. A new run continues from your text; this run does not change.
      </p>
      <textarea
        aria-label={`Text of ${what}`}
        spellcheck={false}
        dir="ltr"
        value={edited}
        disabled={!texts}
        onInput={(event) => setEdited(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void send()
        }}
      />
      {error && (
        <p class="problem" role="alert">
          {visible(error)}
        </p>
      )}
      <div class="buttons">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button type="button" class="primary" disabled={!texts || busy} onClick={send}>
          {busy ? 'Starting…' : texts && edited === texts.edited ? 'Run again from here' : 'Fork and continue'}
        </button>
      </div>
    </dialog>
  )
}
