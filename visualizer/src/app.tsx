/** The page: its header, the current view, and opening of files. */

import { Component, type ComponentChildren, type JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { ComparePage } from './pages/compare'
import { FindPage } from './pages/find'
import { ListPage } from './pages/list'
import { ResultsPage } from './pages/results'
import { RunFrame } from './pages/runframe'
import { ActionsDialog } from './parts/actions'
import { ForkDialog } from './parts/fork'
import { SignedIn, SignInPage } from './parts/signin'
import { Help, helping } from './parts/help'
import { canOpen, closeFile, connection, needsSignIn, opening, openFile, problem, source, sourceNumber, viewer } from './state/app'
import { wordsOf } from './state/asked'
import { useKeys } from './state/keys'
import { go, route, to } from './state/route'
import { nextTheme, theme } from './state/theme'
import { percent } from './text/format'
import { visible } from './text/hostile'

const THEME_WORDS = { auto: 'Auto', dark: 'Dark', light: 'Light' } as const

function FileButton({ children }: { children: string }): JSX.Element {
  const field = useRef<HTMLInputElement>(null)
  return (
    <>
      <button type="button" onClick={() => field.current?.click()}>
        {children}
      </button>
      <input
        ref={field}
        type="file"
        class="hidden"
        tabIndex={-1}
        accept=".jsonl,.json,.ndjson,.log"
        aria-label="Open a log file"
        onChange={(event) => {
          const file = event.currentTarget.files?.[0]
          if (file) void openFile(file)
          event.currentTarget.value = ''
        }}
      />
    </>
  )
}

function Top(): JSX.Element {
  return (
    <header class="top">
      <a class="brand" href={to.list()} aria-label="rlm: list of runs">
        rlm
      </a>
      <span class="where">{visible(viewer.value?.title ?? '')}</span>
      {viewer.value?.has_results && (
        <nav class="top-links" aria-label="Runs and results">
          <a href={to.results()} aria-current={route.value.page === 'results' ? 'page' : undefined}>
            Results
          </a>
          <a href={to.list()} aria-current={route.value.page === 'list' ? 'page' : undefined}>
            Runs
          </a>
        </nav>
      )}
      {route.value.page === 'list' && connection.value === 'lost' && (
        <span class="lost" role="status">
          connection lost, trying again…
        </span>
      )}
      <span class="push" />
      {source.value && source.value.openedId !== null && (
        <button type="button" onClick={() => void closeFile()}>
          Close file
        </button>
      )}
      <SignedIn />
      {source.value && canOpen() && <FileButton>Open file</FileButton>}
      <button type="button" onClick={nextTheme} aria-label={`Change the theme, now ${THEME_WORDS[theme.value]}`}>
        {THEME_WORDS[theme.value]}
      </button>
      <button type="button" onClick={() => (helping.value = true)} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">
        ?
      </button>
    </header>
  )
}

function Welcome(): JSX.Element {
  return (
    <div class="welcome">
      <h1>Open a log</h1>
      <p>
        Drop the <code>.jsonl</code> log of a run anywhere on this page, or choose one. It stays on this machine: the server of this page reads it.
      </p>
      <p>
        <FileButton>Choose a file</FileButton>
      </p>
      <p class="faint">
        You can open logs of rlm and of the reference engine. To see your recorded runs, open the address that the terminal shows.
      </p>
    </div>
  )
}

function NotConnected(): JSX.Element {
  return (
    <div class="welcome">
      <h1>Not connected</h1>
      <p>
        This page needs the server of <code>rlm view</code>. Start it, and open the address that it prints.
      </p>
      {import.meta.env.DEV && (
        <p class="faint">
          <code>npm run dev</code> starts that server if rlm is installed: run <code>make setup</code> once.
        </p>
      )}
    </div>
  )
}

function View(): JSX.Element {
  const now = route.value
  if (needsSignIn.value) return <SignInPage />
  if (!source.value) return canOpen() ? <Welcome /> : <NotConnected />
  if (now.page === 'list') return <ListPage options={now.options} />
  if (now.page === 'find') return <FindPage options={now.options} />
  if (now.page === 'results') return <ResultsPage filter={now.filter} />
  if (now.page === 'compare') return <ComparePage one={now.one} other={now.other} />
  return <RunFrame route={now} />
}

/** A view that fails must not take the rest of the page with it. */
class Guard extends Component<{ at: string; children: ComponentChildren }, { error: string | null }> {
  override state = { error: null as string | null }

  override componentDidCatch(error: unknown): void {
    this.setState({ error: wordsOf(error) })
  }

  override componentDidUpdate(before: { at: string }): void {
    if (before.at !== this.props.at && this.state.error !== null) this.setState({ error: null })
  }

  render(): ComponentChildren {
    if (this.state.error === null) return this.props.children
    return (
      <p class="problem page-problem" role="alert">
        This view failed: {visible(this.state.error)}
      </p>
    )
  }
}

/** A file may be dropped anywhere. */
function useDropping(): boolean {
  const [over, setOver] = useState(false)
  useEffect(() => {
    const hover = (event: DragEvent): void => {
      event.preventDefault()
      setOver(true)
    }
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false)
    }
    const drop = (event: DragEvent): void => {
      event.preventDefault()
      setOver(false)
      const file = event.dataTransfer?.files[0]
      if (file) void openFile(file)
    }
    addEventListener('dragover', hover)
    addEventListener('dragleave', leave)
    addEventListener('drop', drop)
    return () => {
      removeEventListener('dragover', hover)
      removeEventListener('dragleave', leave)
      removeEventListener('drop', drop)
    }
  }, [])
  return over
}

export function App(): JSX.Element {
  const over = useDropping()
  useKeys({
    '?': () => {
      helping.value = true
    },
    'g l': () => go(to.list()),
  })
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault()
        document.querySelector<HTMLElement>('main')?.focus()
      }}>
        Skip to content
      </a>
      <Top />
      {problem.value && (
        <p class="problem page-problem" role="alert">
          {visible(problem.value)}
          <button type="button" onClick={() => (problem.value = null)} aria-label="Dismiss this message">
            ✕
          </button>
        </p>
      )}
      <main id="main" tabIndex={-1}>
        <Guard at={`${sourceNumber.value} ${JSON.stringify(route.value)}`}>
          <View />
        </Guard>
      </main>
      {opening.value && (
        <div class="opening" role="status">
          {opening.value.doing} {visible(opening.value.name)}: {percent(Math.round(opening.value.share * 100))}
        </div>
      )}
      {over && <div class="dropping">Drop the file to open it</div>}
      <ForkDialog />
      <ActionsDialog />
      <Help />
    </>
  )
}
