/** Tags, a score and comments of a run. */

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Judgment, JudgmentChange } from '../contract'
import { sourceNumber, theSource, viewer } from '../state/app'
import { useAsked, wordsOf } from '../state/asked'
import { moment } from '../text/format'
import { oneLine, visible } from '../text/hostile'
import { scoreText } from './listrows'
import { Words } from './words'

const MAX_COMMENT_CHARS = 4_000

interface PartProps {
  readonly judgment: Judgment
  readonly change: (change: JudgmentChange) => Promise<boolean>
}

function Score({ judgment, change }: PartProps): JSX.Element {
  const [text, setText] = useState('')
  const [problem, setProblem] = useState('')
  const give = (score: number | null) => (): void => void change({ score })
  return (
    <div class="judge-row">
      <span class="judge-name">Score</span>
      <strong>{scoreText(judgment.score)}</strong>
      <button type="button" aria-pressed={judgment.score === 1} onClick={give(1)}>
        Good (1)
      </button>
      <button type="button" aria-pressed={judgment.score === 0} onClick={give(0)}>
        Bad (0)
      </button>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          const score = Number(text.trim().replace(',', '.'))
          if (!text.trim() || !Number.isFinite(score)) return setProblem('A score is a number, such as 0.8.')
          setProblem('')
          void change({ score }).then((done) => done && setText(''))
        }}
      >
        <input type="text" inputMode="decimal" size={6} aria-label="Another score" placeholder="0.8" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit">Set</button>
      </form>
      {judgment.score !== null && (
        <button type="button" class="plain" onClick={give(null)}>
          Remove score
        </button>
      )}
      {problem && <span class="problem" role="alert">{problem}</span>}
    </div>
  )
}

function Tags({ judgment, change }: PartProps): JSX.Element {
  const [text, setText] = useState('')
  return (
    <div class="judge-row">
      <span class="judge-name">Tags</span>
      {judgment.tags.map((tag) => (
        <span key={tag} class="badge badge-tag">
          {oneLine(tag, 60)}
          <button type="button" class="plain" aria-label={`Remove the tag ${oneLine(tag, 60)}`} onClick={() => void change({ remove_tags: [tag] })}>
            ✕
          </button>
        </span>
      ))}
      <form
        onSubmit={(event) => {
          event.preventDefault()
          const tags = text.split(/[\s,]+/).filter(Boolean)
          if (tags.length) void change({ add_tags: tags }).then((done) => done && setText(''))
        }}
      >
        <input type="text" size={14} aria-label="New tag" placeholder="new tag" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit">Add</button>
      </form>
    </div>
  )
}

function Comments({ judgment, change }: PartProps): JSX.Element {
  const [text, setText] = useState('')
  return (
    <div class="judge-comments">
      {judgment.comments.length > 0 && (
        <ul>
          {judgment.comments.map((comment) => (
            <li key={comment.id}>
              <Words text={comment.text} />
              <span class="faint">
                {' '}
                {moment(comment.at)}{' '}
                <button type="button" class="plain" aria-label={`Remove the comment ${oneLine(comment.text, 40)}`} onClick={() => void change({ remove_comment: comment.id })}>
                  Remove
                </button>
              </span>
            </li>
          ))}
        </ul>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (text.trim()) void change({ comment: text }).then((done) => done && setText(''))
        }}
      >
        <textarea rows={2} maxLength={MAX_COMMENT_CHARS} aria-label="New comment" placeholder="A comment" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit">Comment</button>
      </form>
    </div>
  )
}

export function JudgePanel({ runId }: { runId: string }): JSX.Element | null {
  const [changed, setChanged] = useState<Judgment | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const can = viewer.value?.can_judge === true
  const { value, error } = useAsked(
    () => (can ? theSource().judgment(runId) : Promise.resolve(null)),
    `judgment ${sourceNumber.value} ${runId}`,
  )
  if (!can) return null
  const judgment = changed ?? value
  const change = async (order: JudgmentChange): Promise<boolean> => {
    try {
      setChanged(await theSource().judge(runId, order))
      setProblem(null)
      return true
    } catch (failure) {
      setProblem(wordsOf(failure))
      return false
    }
  }
  return (
    <section class="judge" aria-labelledby="judge-title">
      <h2 id="judge-title">Judgment</h2>
      {judgment && (
        <>
          <Score judgment={judgment} change={change} />
          <Tags judgment={judgment} change={change} />
          <Comments judgment={judgment} change={change} />
        </>
      )}
      {(problem ?? error) && (
        <p class="problem" role="alert">
          {visible(problem ?? error ?? '')}
        </p>
      )}
    </section>
  )
}
