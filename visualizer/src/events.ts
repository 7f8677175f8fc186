// Made by `npm run types` from src/rlm/records/events.schema.json; not written by hand.
// schema-sha256: bfc659822ec9c7c4d4a1afdaf069081808cac10285fe8da3954cfc090861abd5

/**
 * A run starts, or resumes after it was killed; its earlier events are then sent again.
 *
 * `path` names the run within its tree the same way on every execution. `settings`, in root
 * runs only, are needed to run it again. `context_sha256` is empty if the hash of a large context
 * is not known yet; a run that is logged or journaled reports it in `ContextHashed`.
 */
export interface RunStarted {
  readonly type: 'run_started'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly query: string
  readonly model: string
  readonly sub_model: string
  readonly strategy: string
  readonly environment: string
  readonly context_kind: string
  readonly context_bytes: number
  readonly context_sha256: string
  readonly context_description: string
  readonly parent_call_id?: string | null
  readonly path?: string
  readonly settings?: Readonly<Record<string, unknown>>
}

/**
 * The hash of a large context, computed during the first steps of a run.
 */
export interface ContextHashed {
  readonly type: 'context_hashed'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly context_sha256: string
}

/**
 * How the run proceeds, and why: the strategy that `auto` chose, or the plan of a map/reduce.
 *
 * `kind` is the kind of answer. Of `pieces` with at most `piece_chars` characters, `unread` are
 * left out because they contain no relevant words of the query.
 */
export interface Planned {
  readonly type: 'planned'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly strategy: string
  readonly reason: string
  readonly kind?: string
  readonly pieces?: number
  readonly piece_chars?: number
  readonly unread?: number
}

/**
 * The run is about to ask for its next reply.
 */
export interface StepStarted {
  readonly type: 'step_started'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
}

/**
 * A request for a step, a final answer, a compaction or a repair; `digest` is its hash.
 */
export interface ModelAsked {
  readonly type: 'model_asked'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly purpose: string
  readonly model: string
  readonly new_messages: readonly (Message)[]
  readonly message_count: number
  readonly max_output_tokens: number
  readonly digest?: string
}

/**
 * One message. `opaque` holds provider parts that must be sent back unchanged.
 */
export interface Message {
  readonly role: 'assistant' | 'system' | 'tool' | 'user'
  readonly content: string | readonly (Readonly<Record<string, unknown>>)[]
  readonly tool_calls?: readonly (ToolCall)[]
  readonly tool_call_id?: string | null
  readonly opaque?: unknown
}

/**
 * One native tool call in a reply.
 */
export interface ToolCall {
  readonly id: string
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
}

/**
 * The outcome of a request; `limit` names the limit that caused an error.
 *
 * `stored`: the reply was not requested now, but came from the journal or the cache, or was given
 * to a cell whose session was lost.
 */
export interface ModelReplied {
  readonly type: 'model_replied'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly purpose: string
  readonly model: string
  readonly text?: string
  readonly reasoning?: string
  readonly finish_reason?: string
  readonly tool_calls?: readonly (ToolCall)[]
  readonly usage?: Usage | null
  readonly seconds?: number
  readonly retries?: number
  readonly stored?: boolean
  readonly error?: string | null
  readonly limit?: string | null
}

/**
 * The tokens and money of one or several replies. An unknown cost is None, never 0.
 *
 * `input_tokens` includes those read from a prompt cache (`cached_tokens`) and those written to
 * one (`cache_write_tokens`); `output_tokens` includes `reasoning_tokens`.
 */
export interface Usage {
  readonly input_tokens?: number
  readonly output_tokens?: number
  readonly cached_tokens?: number
  readonly reasoning_tokens?: number
  readonly cost_usd?: number | null
  readonly requests?: number
  readonly cache_write_tokens?: number
}

/**
 * A cell is about to run; cells are numbered within their step.
 */
export interface CellStarted {
  readonly type: 'cell_started'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly cell: number
  readonly code: string
}

/**
 * The output of a cell, up to the kept size; `written_chars` counts all of it.
 */
export interface CellOutput {
  readonly type: 'cell_output'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly cell: number
  readonly stream: 'stderr' | 'stdout'
  readonly text: string
  readonly written_chars: number
}

/**
 * A cell has ended, with the variables it made or changed and their descriptions.
 */
export interface CellEnded {
  readonly type: 'cell_ended'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly cell: number
  readonly seconds: number
  readonly calls: number
  readonly error_type?: string | null
  readonly error_message?: string | null
  readonly traceback?: string | null
  readonly interrupted?: boolean
  readonly new_variables?: Readonly<Record<string, string>>
  readonly changed_variables?: Readonly<Record<string, string>>
  readonly submitted?: boolean
}

/**
 * A call from a cell or from map/reduce.
 *
 * `call_id` is made from the id of the run, the hash of the request, and its number among equal
 * requests. `operator_id` names the operator that makes the call, if any.
 */
export interface CallStarted {
  readonly type: 'call_started'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly call_id: string
  readonly kind: 'llm' | 'rlm'
  readonly model: string
  readonly prompt: string
  readonly operator_id?: string | null
}

/**
 * The outcome of a call; `limit` names the limit that caused an error.
 */
export interface CallEnded {
  readonly type: 'call_ended'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly call_id: string
  readonly kind: 'llm' | 'rlm'
  readonly model: string
  readonly reply?: string
  readonly usage?: Usage | null
  readonly seconds?: number
  readonly retries?: number
  readonly stored?: boolean
  readonly child_run_id?: string | null
  readonly error?: string | null
  readonly limit?: string | null
}

/**
 * An attempt failed, and the same request will be sent again after a pause.
 *
 * `attempt` counts the failed attempts. `call_id` is None for requests of the run itself.
 */
export interface CallRetried {
  readonly type: 'call_retried'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly model: string
  readonly attempt: number
  readonly wait_seconds: number
  readonly error: string
  readonly call_id?: string | null
}

/**
 * An operator such as `classify` begins; `task` is what it asks about its items.
 */
export interface OperatorStarted {
  readonly type: 'operator_started'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly operator_id: string
  readonly name: string
  readonly task: string
  readonly items: number
  readonly distinct: number
}

/**
 * An operator has ended; `summary` says in one line what it did.
 *
 * Of its items, `asked_again` had no usable reply at first, `looked_again` were in doubt,
 * `changed` got another label, and `missing` have no result.
 */
export interface OperatorEnded {
  readonly type: 'operator_ended'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly operator_id: string
  readonly name: string
  readonly summary: string
  readonly prompts: number
  readonly asked_again?: number
  readonly looked_again?: number
  readonly changed?: number
  readonly missing?: number
  readonly seconds?: number
  readonly error?: string | null
}

/**
 * A cell called a tool; `result` is JSON.
 */
export interface ToolCalled {
  readonly type: 'tool_called'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly call_id: string
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly result?: string
  readonly seconds?: number
  readonly stored?: boolean
  readonly error?: string | null
}

/**
 * What a cell received of data that stays on the host, in one event for each method it called.
 *
 * Sent when the cell ends, or earlier if the event would grow too long; several events then share
 * the counts. Of `count` requests, `failed` failed (`error` is the last error) and `from_journal`
 * were answered in an earlier execution. `returned` counts rows, hits, matching lines, parts or
 * documents, and `bytes` is the size of their JSON. The corpus that `documents` belong to has
 * `source_documents` documents of `source_bytes` bytes in all.
 */
export interface DataRead {
  readonly type: 'data_read'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly cell: number
  readonly source: string
  readonly source_id: string
  readonly method: string
  readonly count: number
  readonly failed?: number
  readonly from_journal?: number
  readonly returned?: number
  readonly bytes?: number
  readonly seconds?: number
  readonly error?: string | null
  readonly requests?: readonly (DataRequest)[]
  readonly documents?: readonly (DocumentRead)[]
  readonly source_documents?: number
  readonly source_bytes?: number
}

/**
 * Equal requests for data: `text` is a shortened statement, search or pattern.
 */
export interface DataRequest {
  readonly text: string
  readonly count?: number
  readonly returned?: number
  readonly failed?: number
}

/**
 * What requests found and read of a document of a corpus, of `bytes` bytes (0 if unknown).
 *
 * `found` counts the searches that returned it, `matched` its lines that matched a grep, and
 * `read` the requests that read it. `ranges` are the bytes that were read, as (start, end).
 */
export interface DocumentRead {
  readonly id: number
  readonly name: string
  readonly bytes?: number
  readonly found?: number
  readonly matched?: number
  readonly read?: number
  readonly ranges?: readonly (readonly [number, number])[]
}

/**
 * A piece of the answer, shown while the run is still in progress.
 *
 * Either a cell showed it (`environment="agent"`), or the model wrote it as prose. Prose is sent
 * only to recorders with a true attribute `wants_pieces`, and no log keeps it. If
 * `taken_back_chars` is not 0, that many characters of prose were not the answer after all: they
 * are the last that were sent, and `text` says so to readers.
 */
export interface OutputStreamed {
  readonly type: 'output_streamed'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly text: string
  readonly taken_back_chars?: number
}

/**
 * A cell stored a note for later turns (`environment="agent"`); `value` is JSON.
 */
export interface Noted {
  readonly type: 'noted'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly key: string
  readonly value: string
}

/**
 * A REPL is ready. `layers` describe what isolates its code from the machine.
 */
export interface SessionOpened {
  readonly type: 'session_opened'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly environment: string
  readonly layers: readonly (string)[]
  readonly seconds: number
}

/**
 * The worker died; a new session replaced it or, with `restored`, its last checkpoint.
 */
export interface SessionLost {
  readonly type: 'session_lost'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly reason: string
  readonly lost_variables?: readonly (string)[]
  readonly restored?: boolean
}

/**
 * The history came close to the window, and notes of the model replaced most of it.
 */
export interface Compacted {
  readonly type: 'compacted'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly messages_before: number
  readonly messages_after: number
  readonly chars_before: number
  readonly chars_after: number
}

/**
 * Cells that ran again in a resumed run gave other output; the model is shown the old text.
 *
 * Both texts are observations of that step, cut to a few thousand characters.
 */
export interface Diverged {
  readonly type: 'diverged'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly recorded: string
  readonly now: string
}

/**
 * What the whole tree has used so far; sent after every step that does not end the run.
 */
export interface BudgetChanged {
  readonly type: 'budget_changed'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly calls: number
  readonly tokens: number
  readonly cost_usd: number | null
  readonly overshoot_tokens?: number
}

/**
 * A run has ended; `usage` includes its children. `error` is set if the run raised one.
 *
 * `rejected_answer` is an answer that had the wrong shape, if the run ended without another.
 * `citations` were checked; quotes that the context does not contain are only counted.
 */
export interface RunEnded {
  readonly type: 'run_ended'
  readonly run_id: string
  readonly parent_id?: string | null
  readonly depth?: number
  readonly step?: number
  readonly wall_time?: number
  readonly monotonic_time?: number
  readonly schema_version?: number
  readonly stop_reason: string
  readonly answer_source: string
  readonly answer: string | null
  readonly steps: number
  readonly usage: Usage
  readonly seconds: number
  readonly limit?: string | null
  readonly error?: string | null
  readonly detail?: string
  readonly answer_json?: string | null
  readonly rejected_answer?: string | null
  readonly citations?: readonly (Citation)[]
  readonly unsupported_quotes?: number
  readonly omitted_citations?: number
}

/**
 * A place in the context, and its verbatim text.
 *
 * `file` names the file or document; it is None for a plain text. `start` and `end` are offsets in
 * characters; lines count from 1. `places` is how often a quoted text occurs; the first occurrence
 * is cited. `text` lacks the last `cut_chars` characters of a long place.
 */
export interface Citation {
  readonly file: string | null
  readonly start: number
  readonly end: number
  readonly start_line: number
  readonly end_line: number
  readonly text: string
  readonly places?: number
  readonly cut_chars?: number
}

/**
 * One line of a log: something that happened in a run. Readers pass over fields and types they do not know; x-schema-version grows when a field changes its meaning.
 */
export type RunEvent =
  | RunStarted
  | ContextHashed
  | Planned
  | StepStarted
  | ModelAsked
  | ModelReplied
  | CellStarted
  | CellOutput
  | CellEnded
  | CallStarted
  | CallEnded
  | CallRetried
  | OperatorStarted
  | OperatorEnded
  | ToolCalled
  | DataRead
  | OutputStreamed
  | Noted
  | SessionOpened
  | SessionLost
  | Compacted
  | Diverged
  | BudgetChanged
  | RunEnded
