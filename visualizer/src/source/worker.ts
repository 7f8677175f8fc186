/** Keeps opened files away from the page's own thread: a large one is indexed without a pause. */

import { LogFile } from './log'

export interface Question {
  readonly id: number
  readonly ask: 'open' | 'list' | 'run' | 'step' | 'text' | 'calls' | 'usage' | 'coverage' | 'search'
  readonly what: readonly unknown[]
}

let log: LogFile | null = null

async function answered({ id, ask, what }: Question): Promise<unknown> {
  if (ask === 'open') {
    const [file, name] = what as [Blob, string]
    const opened = new LogFile(file, name)
    await opened.read((share) => postMessage({ id, share }))
    log = opened
    return null
  }
  if (!log) throw new Error('No file is open.')
  const method = log[ask] as (...values: readonly unknown[]) => unknown
  return method.apply(log, what as unknown[])
}

onmessage = (message: MessageEvent<Question>) => {
  const { id } = message.data
  answered(message.data).then(
    (value) => postMessage({ id, value }),
    (error: unknown) => postMessage({ id, error: error instanceof Error ? error.message : String(error) }),
  )
}
