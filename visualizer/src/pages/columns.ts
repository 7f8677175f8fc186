/** The columns of the list. */

export type Column = 'status' | 'query' | 'model' | 'started' | 'steps' | 'calls' | 'depth' | 'tokens' | 'cost' | 'seconds' | 'score'

export const COLUMNS: readonly { readonly name: Column; readonly words: string; readonly isNumber: boolean }[] = [
  { name: 'status', words: 'status', isNumber: false },
  { name: 'query', words: 'query', isNumber: false },
  { name: 'model', words: 'model', isNumber: false },
  { name: 'started', words: 'started', isNumber: true },
  { name: 'steps', words: 'steps', isNumber: true },
  { name: 'calls', words: 'calls', isNumber: true },
  { name: 'depth', words: 'depth', isNumber: true },
  { name: 'tokens', words: 'tokens', isNumber: true },
  { name: 'cost', words: 'cost', isNumber: true },
  { name: 'seconds', words: 'time', isNumber: true },
  { name: 'score', words: 'score', isNumber: true },
]
