/** Where the page is part of a server with tokens: sign in with one of them. */

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { signIn, signOut } from '../source'
import { problem, viewer } from '../state/app'
import { wordsOf } from '../state/asked'
import { oneLine, visible } from '../text/hostile'

export function SignInPage(): JSX.Element {
  const [text, setText] = useState('')
  const [why, setWhy] = useState('')
  return (
    <div class="welcome">
      <h1>Sign in</h1>
      <p>This viewer shows the runs of your token. Enter the token that your programs use with this server.</p>
      <form
        class="sign-in"
        onSubmit={(event) => {
          event.preventDefault()
          setWhy('')
          if (text.trim()) signIn(text.trim()).catch((error: unknown) => setWhy(wordsOf(error)))
        }}
      >
        <input type="password" autocomplete="current-password" aria-label="Token" placeholder="Token" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit">Sign in</button>
      </form>
      {why && (
        <p class="problem" role="alert">
          {visible(why)}
        </p>
      )}
    </div>
  )
}

export function SignedIn(): JSX.Element | null {
  const name = viewer.value?.signed_in
  if (name === undefined) return null
  return (
    <button type="button" onClick={() => void signOut().catch((error: unknown) => (problem.value = wordsOf(error)))}>
      Sign out {oneLine(name, 30)}
    </button>
  )
}
