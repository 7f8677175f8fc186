"""The offline model: a search for passages, not a language model. It needs no key and no download.

It takes part in the real loop. As the model of a run it writes two short cells: one searches the
context with `ctx.search`, the other submits the best passages with their places, below a line that
says what they are. As the model of a call about a text it quotes the sentence that best fits the
question. It never writes its own sentences about the context. Its runs end with `passages`, never
with `answer`.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from textwrap import indent

from msgspec.structs import replace

from rlm.clients._estimate import capped_reply, message_text, request_text, usage_of, word_by_word
from rlm.clients._quoting import Question, quote
from rlm.messages import Message, ModelInfo, Price, Reply, Request, ToolCall

__all__ = ["MODEL", "NOT_FOUND", "OfflineClient", "answer_prompt", "query_of", "search_query"]

MODEL = "offline/extractive"
INFO = ModelInfo(window_tokens=128_000, price=Price(0.0, 0.0), is_language_model=False)
PREFIX = "Search without a language model:"
GET_A_MODEL = "For answers, run `rlm setup` or set a key such as OPENAI_API_KEY."
PASSAGES = (
    "No language model is configured. These are the best passages found by search, not an answer.\n"
    f"{GET_A_MODEL}"
)
NO_PASSAGES = (
    "No language model is configured, and the search found no passage for this question.\n"
    f"{GET_A_MODEL}"
)
NOT_A_TEXT = (
    "No language model is configured. Search finds passages in texts; questions about tables and "
    f"databases need a model.\n{GET_A_MODEL}"
)
NOT_FOUND = "NOT FOUND"
NO_TEXT = (
    "No language model is configured. Search finds passages in texts, and this request contains "
    f"none.\n{GET_A_MODEL}"
)
ONLY_QUOTES = "This offline stand-in can only quote, not count or summarize. The closest passage: "
COUNTING = re.compile(
    r"\b(how many|how often|count|sum|total number|average|summar\w+|compare|list all)\b",
    re.IGNORECASE,
)
LARGE_CHARS = 10_000
"""Longer requests are searched in a thread."""

LONGEST_QUESTION_CHARS = 400
LONGEST_LINE_CHARS = 2_000
MAX_TRIES = 2
TASK = "Task:\n"

LOOK = """\
print("Task:")
print(peek(3000))
if len(ctx) > 3000:
    print("...")
    print(tail(3000))"""

SEARCH = """\
passages = ctx.search({query}, k=5)
print("passages found:", len(passages))
print(passages)"""

SUBMIT = """\
for each in passages:
    if each.get("start") is not None:
        cite(each["start"], each["end"], each["source"])
FINAL({notice} + "\\n\\n" + str(passages))"""

SUBMIT_DOCUMENTS = """\
lines = []
for number, each in enumerate(passages, 1):
    name = "".join(char if char.isprintable() else "?" for char in each["name"])
    text = "\\n   ".join(each["text"].splitlines())
    lines.append(f"{{number}}. {{name}}:{{each['line']}}\\n   {{text}}")
FINAL({notice} + "\\n\\n" + "\\n\\n".join(lines))"""
"""For a corpus, whose documents cells cannot cite."""

SUBMIT_AT_ONCE = """\
{search}
if not passages:
    FINAL({none})
else:
{submit}"""
"""The only cell of a run of one step."""

ONE_STEP = re.compile(r"^You have 1 step\.", re.MULTILINE)
REPL_WORDS = re.compile(r"```repl|\bREPL\b|\bllm_query\b|\bFINAL(_VAR)?\b|execute_python")
SUB_CALL = re.compile(r"\s*you are a sub-llm", re.IGNORECASE)
ANSWER_NOW = re.compile(r"without code|no (more )?code|answer (the query )?now", re.IGNORECASE)
TASK_IN_CONTEXT = re.compile(r"task is in .{0,24}context", re.IGNORECASE)
CORPUS = re.compile(r"^Context: a corpus of ", re.MULTILINE)
DATA_FOR_SQL = re.compile(r"^Ask for rows with `ctx\.sql\(", re.MULTILINE)
SEARCHED = re.compile(
    r"^passages found: (?P<count>\d+)\n(?P<passages>.*?)(?=^stdout [\d.]+\S* chars \||\Z)",
    re.MULTILINE | re.DOTALL,
)

QUERY = re.compile(r"^Query:", re.MULTILINE)
CONTEXT = re.compile(r"^[^\S\n]*+Context:", re.MULTILINE)
QUESTION = re.compile(r"^[ \t]*(?:question|query)[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
BODY = re.compile(
    r"(?:^|(?<=\s))(?P<kind>passage|text|chunk|context|document|excerpt|content"
    r"|notes|(?:partial )?answers|findings|replies)[ \t]*\d*[ \t]*:\s*",
    re.IGNORECASE | re.MULTILINE,
)
NOTES = ("notes", "answers", "partial answers", "findings", "replies")
MISSING = re.compile(r"\W*(?:\w+ ?\d*[:.)\]] *)?not found\W*", re.IGNORECASE)
NUMBERING = re.compile(r"^\s*(?:[-*•]|\[?\d+[\].):]|(?:answer|part|note) ?\d*:)\s*", re.IGNORECASE)


class OfflineClient:
    """Finds and quotes passages, deterministically and free; says so if nothing matches."""

    @classmethod
    def for_model(cls, model: str) -> "OfflineClient":
        """Return a client, whatever the model is called."""
        return cls()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Return a cell, a quotation or NOT FOUND, whichever the request asks for."""
        if len(request_text(request)) > LARGE_CHARS:
            return await asyncio.to_thread(_reply, request)
        return _reply(request)

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the reply word by word, then whole."""
        reply = await self.complete(request, timeout_seconds=timeout_seconds)
        async for part in word_by_word(reply):
            yield part

    def info(self, model: str) -> ModelInfo:
        return INFO

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _reply(request: Request) -> Reply:
    query = _query_of_a_run(request)
    if query is None:
        prompts = [message_text(each) for each in request.messages if each.role == "user"]
        return capped_reply(request, answer_prompt("\n".join(prompts)))
    return _Step(request, query).reply()


def _query_of_a_run(request: Request) -> str | None:
    """Return the query if the request is a step of a run, not a call about a text."""
    system = "\n".join(message_text(each) for each in request.messages if each.role == "system")
    asked = [message_text(each) for each in request.messages if each.role == "user"]
    queries = [query for text in asked if (query := query_of(text))]
    if not queries or SUB_CALL.match(system):
        return None
    has_repl = bool(request.tools) or REPL_WORDS.search(system)
    return queries[0] if has_repl or asked[0].lstrip().startswith("Query:") else None


class _Step:
    """The next step of a run, worked out from its messages alone."""

    def __init__(self, request: Request, query: str) -> None:
        self.request = request
        self.query = query
        own = [each for each in request.messages if each.role == "assistant"]
        self.written = [_written(message) for message in own]
        first = next(i for i, each in enumerate(request.messages) if each.role == "user")
        self.first = message_text(request.messages[first])
        shown = [each for each in request.messages[first + 1 :] if each.role in {"user", "tool"}]
        self.shown = "\n".join(message_text(message) for message in shown)
        self.last = message_text(request.messages[-1])
        if TASK_IN_CONTEXT.search(query) and TASK in self.shown:
            self.query = question_in(self.shown.split(TASK)[1] + "\n\n")

    def reply(self) -> Reply:
        if ANSWER_NOW.search(SEARCHED.sub("", self.last)):
            return capped_reply(self.request, self._from_what_was_printed())
        if found := SEARCHED.search(self.shown):
            if self._tries("FINAL(") >= MAX_TRIES:
                return self._final(self._from_what_was_printed())
            if found["count"] == "0":
                return self._cell(f"FINAL({NO_PASSAGES!r})", "no passage matches the question.")
            return self._cell(
                self._submit(), f"I am submitting the {found['count']} best passages."
            )
        if TASK_IN_CONTEXT.search(self.query):
            return self._cell(LOOK, "the task is in the context, so I will read it first.")
        if DATA_FOR_SQL.search(self.first):
            return self._final(NOT_A_TEXT)
        query = search_query(self.query)
        if not query or self._tries("ctx.search(") >= MAX_TRIES:
            return self._final(NO_PASSAGES)
        code, why = SEARCH.format(query=repr(query)), "I am looking for the best passages."
        if ONE_STEP.search(self.first):
            submit = indent(self._submit(), "    ")
            code = SUBMIT_AT_ONCE.format(search=code, none=repr(NO_PASSAGES), submit=submit)
        return self._cell(code, why)

    def _submit(self) -> str:
        code = SUBMIT_DOCUMENTS if CORPUS.search(self.first) else SUBMIT
        return code.format(notice=repr(PASSAGES))

    def _tries(self, code: str) -> int:
        return sum(code in text for text in self.written)

    def _from_what_was_printed(self) -> str:
        """Return the answer in words, from the passages that were printed."""
        found = SEARCHED.search(self.shown)
        if found is None or found["count"] == "0":
            return NO_PASSAGES
        return f"{PASSAGES}\n\n{found['passages'].strip()}"

    def _cell(self, code: str, why: str) -> Reply:
        if self._has_tool("execute_python"):
            return self._call("execute_python", {"code": code}, why)
        longest = max((len(each) for each in re.findall(r"`{3,}", code)), default=2)
        fence = "`" * (longest + 1)  # One that the question does not contain.
        return capped_reply(self.request, f"{PREFIX} {why}\n\n{fence}repl\n{code}\n{fence}")

    def _final(self, answer: str) -> Reply:
        if self._has_tool("submit_answer"):
            return self._call("submit_answer", {"answer": answer}, "this is all I found.")
        return capped_reply(self.request, f"Final Answer: {answer}")

    def _has_tool(self, name: str) -> bool:
        return any(tool.name == name for tool in self.request.tools)

    def _call(self, name: str, arguments: dict[str, str], why: str) -> Reply:
        call = ToolCall(id=f"call_{len(self.written)}", name=name, arguments=dict(arguments))
        text = f"{PREFIX} {why}"
        reply = Reply(
            text=text, tool_calls=(call,), finish_reason="tool_calls", model=self.request.model
        )
        return replace(reply, usage=usage_of(self.request, reply))


def _written(message: Message) -> str:
    """Return what the model wrote in a message, in either protocol."""
    codes = [str(call.arguments.get("code", "")) for call in message.tool_calls]
    return "\n".join([message_text(message), *codes])


def _disclaimer(question: str) -> str:
    return ONLY_QUOTES if COUNTING.search(question) else ""


def query_of(text: str) -> str | None:
    """Return what follows `Query:` in a run's first message, up to the context's description."""
    found = QUERY.search(text)
    if found is None:
        return None
    described = CONTEXT.search(text, found.end())
    query = text[found.end() : len(text) if described is None else described.start()].strip()
    return question_in(query) if query else None


def search_query(question: str) -> str:
    """Return what to search for: the question, with names that a passage must contain in quotes.

    Empty if it has no words.
    """
    query = " ".join(question.replace('"', " ").split())
    for key in Question(question).keys:
        if not key.weak and key.text in query:
            query = query.replace(key.text, f'"{key.text}"', 1)
    return query if re.search(r"[^\W_]", query) else ""


def question_in(text: str) -> str:
    """Return the part of a text that asks: all of it if short, else its last question."""
    if len(text) <= LONGEST_QUESTION_CHARS and "\n\n" not in text:
        return text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    asking = [line for line in lines if line.endswith(("?", "？"))]
    return (asking or lines[:1] or [""])[-1][:LONGEST_LINE_CHARS]


def answer_prompt(prompt: str) -> str:
    """Answer a prompt that contains a question and a text, with a quotation or NOT FOUND."""
    question, body, is_notes = _parts(prompt)
    lines = body.splitlines()
    kept = [line for line in lines if not MISSING.fullmatch(line)]
    merging = is_notes or len(kept) < len(lines)
    if merging:
        kept = [NUMBERING.sub("", line).strip() for line in kept if line.strip()]
    found = quote(Question(question), "\n".join(kept))
    if found and found.sure:
        return _disclaimer(question) + found.text
    if merging and kept:
        return kept[0]
    return NOT_FOUND if is_notes or body.strip() else NO_TEXT


def _parts(prompt: str) -> tuple[str, str, bool]:
    """Return the question, the text, and whether the text is a list of partial answers."""
    asked = QUESTION.search(prompt)
    marked = BODY.search(prompt, asked.end() if asked else 0)
    if asked and marked:
        head = prompt[asked.end() : marked.start()].strip()
        return head.split("\n\n")[0], prompt[marked.end() :], marked["kind"].lower() in NOTES
    if asked:
        before, after = prompt[: asked.start()], prompt[asked.end() :]
        question, _, rest = after.partition("\n")
        return question, f"{before}\n{rest}", False
    if marked and prompt[: marked.start()].strip():
        question = question_in(prompt[: marked.start()] + "\n\n")
        return question, prompt[marked.end() :], marked["kind"].lower() in NOTES
    lines = prompt.strip().splitlines() or [""]
    asking = [number for number, line in enumerate(lines) if line.rstrip().endswith("?")]
    at = asking[-1] if asking else 0
    return lines[at], "\n".join(lines[:at] + lines[at + 1 :]), False
