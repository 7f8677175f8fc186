/** The answers of the server's API. */

import type { RunEnded, RunEvent, RunStarted } from './events'

export interface ViewerFacts {
  readonly version: string
  readonly title: string
  readonly can_fork: boolean
  readonly why_not_fork: string | null
  readonly live: boolean
  /** Whether runs can be tagged, scored and commented, and whether the texts of all of them can be searched. */
  readonly can_judge?: boolean
  readonly can_search?: boolean
  /** Whether files may be opened here; absent where they may. */
  readonly can_open?: boolean
  /** What to say where there are no runs. */
  readonly empty?: string
  /** Who is signed in; absent where the link is the key. */
  readonly signed_in?: string
  /** Whether this is the folder of a benchmark, or the answers of a batch. */
  readonly has_results: boolean
}

export interface Outline {
  readonly run_id: string
  readonly parent_id: string | null
  readonly parent_call_id: string | null
  readonly depth: number
  readonly query: string
  readonly model: string
  readonly status: 'running' | 'ended' | 'interrupted'
  readonly stop_reason: string
  readonly answer_source: string
  readonly limit: string | null
  readonly error: string | null
  readonly answer: string | null
  readonly steps: number
  readonly calls: number
  readonly tokens: number
  readonly cost_usd: number | null
  readonly seconds: number
  readonly started: number
  readonly attempts: number
  /** All descendants, and how deep they go; calls of all of them. */
  readonly children: number
  readonly deepest: number
  readonly all_calls: number
  /** What is known beside the record, such as the score of a trial. */
  readonly note?: string
  /** Of the list only: what people say about a run, what it used of each model, and what it belongs to. */
  readonly tags?: readonly string[]
  readonly score?: number | null
  readonly comments?: number
  readonly models?: readonly ModelCost[]
  readonly group?: RunGroup
}

export interface ModelCost {
  readonly model: string
  readonly tokens: number
  readonly cost_usd: number | null
}

export interface RunGroup {
  readonly kind: string
  readonly name: string
}

/** A text of a run that has all words of a search. */
export interface TextHit {
  readonly run_id: string
  readonly step: number
  readonly index: number
  readonly kind: 'query' | 'answer' | 'code' | 'output' | 'error'
  readonly cell: number | null
  readonly excerpt: string
}

export interface FoundTexts {
  readonly runs: readonly { readonly run: Outline; readonly hits: readonly TextHit[]; readonly more: boolean }[]
  readonly more: boolean
  /** Present while not everything is indexed. */
  readonly indexing?: { readonly files: number; readonly left: number }
  readonly problem?: string
}

export interface Comment {
  readonly id: string
  readonly text: string
  readonly at: number
}

export interface Judgment {
  readonly tags: readonly string[]
  readonly score: number | null
  readonly comments: readonly Comment[]
}

export interface JudgmentChange {
  readonly add_tags?: readonly string[]
  readonly remove_tags?: readonly string[]
  readonly score?: number | null
  readonly comment?: string
  readonly remove_comment?: string
}

export interface RunList {
  readonly runs: readonly Outline[]
  readonly skipped: { readonly count: number; readonly reasons: readonly string[] }
  /** Present while files are read for the first time; `done` is between 0 and 1. */
  readonly reading?: { readonly files: number; readonly done: number }
}

export interface StepRow {
  readonly step: number
  readonly start: number
  readonly end: number
  readonly cells: number
  readonly calls: number
  readonly failed_calls: number
  readonly tools: number
  /** With its child runs, and without them. */
  readonly tokens: number
  readonly cost_usd: number | null
  readonly own_tokens: number
  readonly own_cost_usd: number | null
  readonly error: boolean
  readonly stored: boolean
}

export interface ContextFacts {
  readonly kind: string
  readonly bytes: number
  readonly sha256: string
  readonly description: string
  readonly available: boolean
}

export interface RunPage {
  readonly run: Outline
  readonly tree: readonly Outline[]
  readonly steps: readonly StepRow[]
  readonly started: RunStarted | null
  readonly ended: RunEnded | null
  readonly context: ContextFacts
}

/** An event with its number within its run; `cut` names the fields that are shortened, with their sizes. */
export type Numbered<E extends RunEvent = RunEvent> = E & {
  readonly index: number
  readonly cut?: Readonly<Record<string, number>>
}

export interface EventPage {
  readonly events: readonly Numbered[]
  readonly total: number
}

export interface WholeText {
  readonly text: string
  /** Present if even this text is cut. */
  readonly chars?: number
}

export interface CallRow {
  readonly call_id: string
  readonly run_id: string
  readonly depth: number
  readonly step: number
  readonly kind: 'llm' | 'rlm' | 'tool' | 'request' | 'step' | 'cell' | 'operator' | 'run'
  readonly model: string
  readonly start: number
  readonly end: number | null
  readonly tokens: number
  readonly cost_usd: number | null
  readonly error: string | null
  readonly stored: boolean
  readonly retries: number
  readonly child_run_id: string | null
  readonly prompt: string
  readonly reply: string
}

export interface CallList {
  readonly calls: readonly CallRow[]
  readonly total: number
  /** The requests of the runs themselves, step by step. */
  readonly requests: readonly CallRow[]
  /** When the run started, and when it ended or was last active. */
  readonly start: number
  readonly end: number
}

/** With the steps, cells, operators and child runs around the calls. */
export interface Timeline extends CallList {
  readonly spans: readonly CallRow[]
}

export interface UsagePoint {
  readonly time: number
  readonly depth: number
  readonly tokens: number
  readonly cost_usd: number | null
}

/** `tokens` and `cost_usd` are those of the whole run; points contain only what events report. */
export interface UsageFacts {
  readonly points: readonly UsagePoint[]
  readonly tokens: number
  readonly cost_usd: number | null
  readonly start: number
  readonly end: number
  readonly models: readonly UsageRow[]
  readonly depths: readonly UsageRow[]
  readonly steps: readonly StepRow[]
}

export interface UsageRow {
  readonly model?: string
  readonly depth?: number
  readonly runs?: number
  readonly requests: number
  readonly input_tokens: number
  readonly output_tokens: number
  readonly tokens: number
  readonly cost_usd: number | null
}

export interface Reader {
  readonly run_id: string
  readonly step: number
  readonly kind: 'printed' | 'call' | 'request'
  readonly call_id: string | null
  readonly cell: number | null
}

export interface ReadSpan {
  readonly start: number
  readonly end: number
  readonly readers: readonly number[]
}

export interface ContextDocument {
  readonly name: string
  readonly start: number
  readonly end: number
}

export interface Coverage {
  readonly available: boolean
  readonly why_not: string | null
  readonly chars: number
  readonly documents: readonly ContextDocument[]
  readonly spans: readonly ReadSpan[]
  readonly readers: readonly Reader[]
  readonly unread_percent: number
  readonly exact: boolean
  /** Instead of all that: what was read of data that stays on the host. */
  readonly data?: DataCoverage
}

/** Numbers may be those of a stranger's log. Both lists have at most 1,000 rows; `more_…` counts the others. */
export interface DataCoverage {
  readonly description: string
  /** `corpus` or `tables`; empty if nothing was asked. */
  readonly sources: readonly string[]
  readonly source_documents: number
  readonly source_bytes: number
  readonly documents_found: number
  readonly documents_matched: number
  readonly documents_read: number
  readonly bytes_read: number
  readonly documents: readonly DataDocument[]
  readonly more_documents: number
  readonly methods: readonly DataStatement[]
  readonly statements: readonly DataStatement[]
  readonly more_statements: number
  readonly exact: boolean
}

export interface DataDocument {
  readonly name: string
  readonly bytes: number
  readonly found: number
  readonly matched: number
  readonly read: number
  readonly bytes_read: number
}

export interface DataStatement {
  readonly method: string
  readonly text: string
  readonly count: number
  readonly returned: number
  readonly failed: number
}

/** What is answered while a map is made. */
export interface CoverageProgress {
  readonly mapping: { readonly done: number }
}

/** A line of the context, or a part of a very long one. Places are in characters as Python counts them. */
export interface ContextRow {
  readonly document: number
  readonly line: number
  readonly column: number
  readonly start: number
  readonly end: number
  readonly text: string
}

export interface ContextPage {
  readonly rows: readonly ContextRow[]
  readonly start: number
  /** Where the pages before and after this one begin. */
  readonly before: number | null
  readonly after: number | null
  readonly chars: number
  readonly lines: number
  readonly documents: number
  readonly names: readonly string[]
  /** Where the line that was asked for begins. */
  readonly at?: number
}

export interface ContextHit {
  readonly start: number
  readonly end: number
  readonly line: number
  readonly document: number
  readonly excerpt: string
}

export interface ContextHits {
  readonly hits: readonly ContextHit[]
  /** Where the search can go on. */
  readonly next: number | null
}

/** Why each action is not possible, null if it is; and how to ask the same again. */
export interface RunActions {
  readonly stop: string | null
  readonly resume: string | null
  readonly delete: string | null
  readonly formats: Readonly<Record<string, string>>
  readonly python: string | null
  readonly command: string | null
  readonly why_not_copy: string | null
}

export interface ResultFolder {
  readonly name: string
  readonly model: string
  readonly sub_model: string
  readonly engine: string
  readonly live: boolean
  readonly cost_usd: number | null
}

/** Means of the trials of one task, size and method in one folder; scores are percentages. */
export interface ResultFigures {
  readonly folder: number
  readonly task: string
  readonly size: number
  readonly size_words: string
  readonly method: string
  readonly samples: number
  readonly impossible: number
  readonly failed: number
  readonly hits: number
  readonly score: number | null
  readonly low: number | null
  readonly high: number | null
  readonly cost_usd: number | null
  readonly tokens: number | null
  readonly calls: number | null
  readonly seconds: number | null
}

export interface ResultSample {
  readonly folder: number
  /** The same in two folders for the same sample and method. */
  readonly key: string
  readonly task: string
  readonly size: number
  readonly size_words: string
  readonly method: string
  readonly name: string
  readonly status: string
  readonly score: number | null
  readonly answer: string | null
  readonly gold: string | null
  readonly error: string | null
  readonly cost_usd: number | null
  readonly tokens: number
  readonly seconds: number
  readonly run_id: string
}

export interface ResultList {
  readonly kind: 'bench' | 'batch'
  readonly folders: readonly ResultFolder[]
  readonly figures: readonly ResultFigures[]
  readonly samples: readonly ResultSample[]
  readonly left_out: number
}

export interface Hit {
  readonly run_id: string
  readonly step: number
  readonly index: number
  readonly type: string
  readonly field: string
  readonly cell: number | null
  readonly call_id: string | null
  readonly excerpt: string
}

export interface Hits {
  readonly hits: readonly Hit[]
  readonly more: boolean
}

export type Connection = 'none' | 'open' | 'lost'

export interface RunWatcher {
  event(event: Numbered): void
  ended(): void
  connection(state: Connection): void
}
