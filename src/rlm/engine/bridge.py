"""Answer the requests of sandboxed code: calls, child runs, tools, the budget.

Sandboxed code is not trusted: every argument is checked here, models must be on the caller's list,
and an error is returned as a sentence that the model can act on.

A call with pictures has `arguments["images"]`: for each prompt, a list of bytes and names.
"""

import asyncio
import functools
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rlm._util.off_loop import LONG_CHARS, is_quick_json, off_loop
from rlm._util.text import all_used
from rlm._util.untrusted import JsonBounds, TooLarge, read_json
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope, failed
from rlm.config import RunConfig
from rlm.context import StoredContext
from rlm.engine.children import ChildTask, StartChild
from rlm.engine.concurrency import concurrently, outcome
from rlm.engine.pictures import RunPictures
from rlm.engine.tool_values import called, decoded_arguments, encoded_result
from rlm.errors import CallRefused, ModelError, RLMError, ToolError
from rlm.events import (
    CUT,
    MAX_PROMPT_CHARS,
    MAX_RESULT_CHARS,
    CallEnded,
    CallStarted,
    Noted,
    OutputStreamed,
    ToolCalled,
)
from rlm.messages import Message, Reply, Request
from rlm.portal import Inside, inside
from rlm.prompts.observation import cut
from rlm.protocols import Tool
from rlm.worker.bounds import CALLS, MAX_CONTEXT_VALUES, MAX_NAME_CHARS, MAX_TOOL_VALUES

if TYPE_CHECKING:  # Imported where they are used: few programs use them.
    from rlm.engine.data_calls import RunData
    from rlm.engine.operators.shapes import Shape

__all__ = ["Bridge"]

SUB_CALL_SYSTEM = "You are a sub-LLM. Answer from the text in the prompt, briefly and exactly."
_SYSTEM = Message("system", SUB_CALL_SYSTEM)

CALLS_PER_SLOT = 4
"""How many calls of a batch are started per slot: some are waiting to be retried."""

MAX_TEXTS = 100_000
MAX_TEXT_CHARS = 20_000_000

CONTEXT = JsonBounds(CALLS[b"rlm"].texts_bytes, MAX_CONTEXT_VALUES, exponents=MAX_CONTEXT_VALUES)
NOTE = JsonBounds(CALLS[b"note"].texts_bytes, MAX_TOOL_VALUES)

SHAPE_ATTEMPTS = 3
JSON_ONLY = "Reply with the JSON only: no prose, no code fence."

Answer = tuple[dict[str, Any], Sequence[str]]


class Bridge:
    """Serves the requests from the sandbox of one run.

    `contexts` are those of the session; cells may name their pictures. `grants` names the tools
    that children may have.
    """

    def __init__(
        self,
        calls: Calls,
        config: RunConfig,
        scope: Scope,
        start_child: StartChild,
        tools: Sequence[Tool] = (),
        contexts: Mapping[str, Any] | None = None,
        grants: Collection[str] = (),
    ) -> None:
        self.calls = calls
        self.config = config
        self.scope = scope
        self.start_child = start_child
        self.tools = {tool.name: tool for tool in tools}
        self._contexts = {} if contexts is None else contexts
        self.pictures = RunPictures(self._contexts)
        self.grants = grants
        self.inside = Inside()
        """Set by the run: requests of cells arrive in the context that opened their session."""
        self._streamed_texts = self._streamed_chars = 0

    @functools.cached_property
    def data(self) -> "RunData":
        """The tables and corpora that the run may ask; most runs have none."""
        from rlm.engine.data_calls import RunData

        return RunData(self._contexts, self.scope)

    async def answer(self, kind: str, arguments: dict[str, Any], parts: Sequence[str]) -> Answer:
        """Answer one request (the Host protocol): metadata and text parts."""
        if kind == "llm":
            return await self._llm(arguments, parts)
        if kind == "rlm":
            inside.set(self.inside)
            return await self._rlm(arguments, parts)
        if kind == "operator":
            return await self._operator(arguments, parts)
        if kind == "tool":
            inside.set(self.inside)
            return await self._tool(arguments)
        if kind == "data":
            return await self.data.answer(arguments)
        if kind == "budget":
            return dict(self.scope.budget.left()), ()
        if kind == "cite" and self.scope.citations is not None:
            return await self.scope.citations.cite(arguments, parts)
        if kind in ("stream", "note"):
            await self._tell(kind, *parts)
            return {}, ()
        raise CallRefused(f"unknown kind of call {kind!r}", limit="kind")

    # -- plain calls -------------------------------------------------------------------------

    async def _llm(self, arguments: dict[str, Any], prompts: Sequence[str]) -> Answer:
        model = self._model(arguments)
        images = arguments.get("images")
        if images is not None and (not isinstance(images, list) or len(images) != len(prompts)):
            raise CallRefused("malformed llm_query", limit="kind")

        cap = self._output_cap(arguments)
        shape = None if arguments.get("schema") is None else await self._shape(arguments)

        def ask(index: int) -> Awaitable[str]:
            if shape is not None:
                return self._shaped(prompts[index], model, cap, shape)
            if images is None:
                return self._ask(prompts[index], model, cap)
            return self._look(prompts[index], images[index], model, cap)

        answer = await self._all_of(len(prompts), ask)
        return self._with_failed_replies("llm", arguments, answer)

    def _output_cap(self, arguments: dict[str, Any]) -> int:
        """Return how many tokens a reply may have: what the cell asks for, up to the limit."""
        most, asked = self.config.limits.call_output_tokens, arguments.get("max_tokens")
        if asked is None:
            return most
        if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
            raise CallRefused("malformed llm_query", limit="kind")
        return min(asked, most)

    async def _look(self, prompt: str, images: Sequence[Any], model: str, cap: int) -> str:
        async with self.pictures.content(prompt, images) as content:
            return await self._ask(content, model, cap)

    async def _ask(
        self, content: str | list[dict[str, Any]], model: str, cap: int | None = None
    ) -> str:
        request = Request(
            model=model,
            messages=(_SYSTEM, Message("user", content)),
            max_output_tokens=cap or self.config.limits.call_output_tokens,
            sampling=self.config.sub_sampling,
        )
        return (await self.calls.counted_call(self.scope, request)).text

    async def _shape(self, arguments: dict[str, Any]) -> "Shape":
        """Return the shape of replies that a cell asks for with `schema=`."""
        if arguments.get("images") is not None:
            raise CallRefused("llm_query takes either images or a schema", limit="kind")
        from rlm.engine.operators.shapes import shape_of

        return await shape_of(arguments["schema"])

    async def _shaped(self, prompt: str, model: str, cap: int, shape: "Shape") -> str:
        """Return a reply as JSON of this shape; if it has another, ask again with the mistake."""
        from rlm.engine.operators.reading import json_in

        asked = f"{prompt}\n\n{shape.description}\n\n{JSON_ONLY}"
        problem = ""
        for _ in range(SHAPE_ATTEMPTS):
            reply = await self._ask(f"{asked} {problem}".rstrip(), model, cap)
            try:
                return json.dumps(await shape.check(json_in(reply)), ensure_ascii=False)
            except ValueError as error:
                problem = f"Avoid this mistake of an earlier reply: {error}"
        raise ModelError(f"no reply had the requested shape: {problem.partition(': ')[2]}")

    # -- operators ---------------------------------------------------------------------------

    async def _operator(self, arguments: dict[str, Any], parts: Sequence[str]) -> Answer:
        model, name = self._model(arguments), arguments.get("name")
        options, left = arguments.get("options"), arguments.get("left")
        if not isinstance(name, str) or not isinstance(options, dict):
            raise CallRefused("malformed operator", limit="kind")
        if left is not None and (not isinstance(left, int) or not 0 <= left <= len(parts)):
            raise CallRefused("malformed operator", limit="kind")
        from rlm.engine.operators import OperatorCall, run_operator

        call = OperatorCall(
            name=name,
            items=tuple(parts[:left]),
            others=None if left is None else tuple(parts[left:]),
            absent=arguments.get("absent", ()),
            options=options,
        )
        result = await run_operator(call, self.calls, self.scope, self.config, model)
        return {}, [await result.to_json()]

    def _with_failed_replies(self, kind: str, arguments: dict[str, Any], answer: Answer) -> Answer:
        """Return the answer with failures replaced by `failed_replies`, if the run has any."""
        about, texts = answer
        if not about["failed"]:
            return answer
        name = f"{kind}_batched" if arguments.get("batched") is True else kind
        template = self.config.call_rules.failed_replies.get(name)
        if template is None:
            return answer
        replies = list(texts)
        for index, reason in about["failed"].items():
            replies[int(index)] = template.replace("{reason}", reason)
        return {"failed": {}}, replies

    def _model(self, arguments: dict[str, Any], otherwise: str | None = None) -> str:
        """Return the allowed model that a call names, with or without its provider."""
        model = arguments.get("model") or otherwise or self.config.sub_model
        if model == self.config.sub_model:
            return model
        if not isinstance(model, str):
            raise CallRefused("malformed model", limit="kind")
        allowed = self.config.allowed_models
        if model in allowed:
            return model
        found = [each for each in allowed if self.calls.router(each).goes_by(model)]
        if len(found) == 1:
            return found[0]
        listed = ", ".join(sorted(found or allowed))
        problem = "matches several models" if found else "is not allowed here"
        raise CallRefused(f"model {model!r} {problem}; use one of {listed}", limit="models")

    # -- child runs --------------------------------------------------------------------------

    async def _rlm(self, arguments: dict[str, Any], parts: Sequence[str]) -> Answer:
        model = self._model(arguments, self._child_model())
        granted = self._granted(arguments.get("tools"))
        contexts = arguments.get("contexts")
        if not isinstance(contexts, list) or len(parts) < len(contexts):
            raise CallRefused("malformed rlm_query", limit="kind")
        values = await self._decoded(contexts, parts[len(contexts) :])

        def child(index: int) -> Awaitable[str]:
            has_context = contexts[index] is not None
            return self._child(parts[index], values[index], has_context, model, granted)

        answer = await self._all_of(len(contexts), child)
        return self._with_failed_replies("rlm", arguments, answer)

    async def _decoded(self, kinds: Sequence[Any], parts: Sequence[str]) -> list[Any]:
        """Return the contexts of child runs; those on the host are named by their ids."""
        values = await _all_decoded(kinds, parts)
        return [
            self.data.context(value) if kind and kind.get("kind") == "source" else value
            for kind, value in zip(kinds, values, strict=True)
        ]

    def _child_model(self) -> str | None:
        """Return the model of child runs; at the depth limit a child is a plain call."""
        is_plain = self.scope.depth + 1 >= self.config.limits.max_depth
        return None if is_plain else self.config.call_rules.child_model

    def _granted(self, names: Any) -> tuple[str, ...] | None:
        """Return the tools that a cell grants its children, sorted; refuse any other."""
        if names is None:
            return None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise CallRefused("malformed rlm_query", limit="kind")
        if unknown := [name for name in names if name not in self.grants]:
            known = ", ".join(sorted(self.grants)) or "none"
            raise CallRefused(
                f"a child can't have the tool {unknown[0][:60]!r}; it may have: {known}",
                limit="tools",
            )
        return tuple(sorted(set(names)))

    async def _child(
        self,
        prompt: str,
        context: Any,
        has_context: bool,
        model: str,
        granted: tuple[str, ...] | None,
    ) -> str:
        if self.scope.depth + 1 >= self.config.limits.max_depth:
            return await self._ask(
                f"{prompt}\n\n{await _as_text(context)}" if has_context else prompt, model
            )
        self.scope.budget.count_call()
        task = ChildTask(prompt, context, has_context, model, "", self.pictures.by_name, granted)
        digest = await off_loop(len(prompt), lambda: _digest(model, task.distinct(prompt)))
        shown = await off_loop(len(prompt), lambda: cut(prompt, MAX_PROMPT_CHARS))
        key = self.scope.key("rlm", digest)
        about = {"call_id": self.scope.call_id(key), "kind": "rlm", "model": model}
        task = replace(task, call_id=about["call_id"])
        self.scope.emit(CallStarted, **about, prompt=shown)
        started = time.monotonic()
        try:
            child = await self.start_child(task)
        except RLMError as error:
            seconds = time.monotonic() - started
            self.scope.emit(CallEnded, **about, seconds=seconds, error=str(error))
            raise
        seconds = time.monotonic() - started
        self.scope.emit(
            CallEnded,
            **about,
            reply=child.text,
            child_run_id=child.run_id,
            seconds=seconds,
            stored=child.stored,
        )
        return child.text

    async def _all_of(self, count: int, ask: Callable[[int], Awaitable[str]]) -> Answer:
        """Return the replies in order; a failure is reported by index and affects no other item.

        Items beyond `max_calls` are not started: a batch may have millions.
        """
        if count == 1:  # The usual case, where a task would cost more than the rest.
            reply = await outcome(ask(0))
            return ({"failed": {}}, [reply]) if isinstance(reply, str) else _one_failed(reply)
        room = min(count, max(0, self.scope.budget.room().calls))
        at_once = CALLS_PER_SLOT * self.config.limits.max_concurrent_calls
        replies = await concurrently(room, ask, at_once)
        errors = {str(i): each for i, each in enumerate(replies) if isinstance(each, RLMError)}
        if room < count:
            refusal = f"{all_used(self.config.limits.max_calls, 'call')} (max_calls)"
            beyond = CallRefused(refusal, limit="calls")
            errors.update((str(index), beyond) for index in range(room, count))
        texts = [reply if isinstance(reply, str) else "" for reply in replies]
        return _failures(errors), [*texts, *[""] * (count - room)]

    # -- streamed texts and notes ------------------------------------------------------------

    async def _tell(self, kind: str, key: str, text: str) -> None:
        """Emit a piece of the answer or a note. Events are stored, so their number is limited."""
        if len(key) > MAX_NAME_CHARS:
            raise CallRefused(
                f"the key of a note can have at most {MAX_NAME_CHARS} characters", limit="told"
            )
        self._streamed_texts += 1
        self._streamed_chars += len(key) + len(text)
        if self._streamed_texts > MAX_TEXTS or self._streamed_chars > MAX_TEXT_CHARS:
            raise CallRefused(
                f"a run can stream and note at most {MAX_TEXTS:,} texts with {MAX_TEXT_CHARS:,} "
                "characters in total; submit the rest as the answer",
                limit="told",
            )
        if kind == "stream":
            self.scope.emit(OutputStreamed, text=text)
        else:
            if is_quick_json(text):
                _check_note(text)
            else:
                await asyncio.to_thread(_check_note, text)
            self.scope.emit(Noted, key=key, value=text)

    # -- tools -------------------------------------------------------------------------------

    async def _tool(self, arguments: dict[str, Any]) -> Answer:
        name, given = arguments.get("name"), arguments.get("arguments")
        tool = self.tools.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(given, dict):
            known = ", ".join(sorted(self.tools)) or "none"
            raise CallRefused(f"unknown tool {name!r}; tools: {known}", limit="tools")
        self.scope.budget.count_call()
        encoded, values = await decoded_arguments(given)
        digest = await off_loop(len(encoded), lambda: _digest(tool.name, encoded))
        key = self.scope.key("tool", digest)
        shown = given if len(encoded) <= MAX_RESULT_CHARS else {CUT: await _logged(encoded)}
        about = {"call_id": self.scope.call_id(key), "name": tool.name, "arguments": shown}
        if (stored := await self.scope.recall(key)) is not None:
            return await self._stored_result(about, stored)
        started = time.monotonic()
        try:
            text = await encoded_result(await called(tool, values))
        except Exception as error:  # the plugin boundary: a tool is the caller's code
            seconds = time.monotonic() - started
            self.scope.emit(ToolCalled, **about, seconds=seconds, error=str(error))
            await self.scope.remember(key, failed(error))
            raise
        await self.scope.remember(key, Reply(text=text))
        seconds = time.monotonic() - started
        self.scope.emit(ToolCalled, **about, result=await _logged(text), seconds=seconds)
        return {"json": text}, ()

    async def _stored_result(self, about: dict[str, Any], stored: Reply) -> Answer:
        """Return the stored result of an earlier execution; the tool is not called again."""
        if stored.finish_reason == "failed":
            self.scope.emit(ToolCalled, **about, stored=True, error=stored.text)
            raise ToolError(stored.text)
        self.scope.emit(ToolCalled, **about, result=await _logged(stored.text), stored=True)
        return {"json": stored.text}, ()


async def _logged(result: str) -> str:
    """Return the part of a result that its event holds."""
    return await off_loop(len(result), lambda: cut(result, MAX_RESULT_CHARS))


def _one_failed(error: RLMError) -> Answer:
    return _failures({"0": error}), [""]


def _failures(errors: Mapping[str, RLMError]) -> dict[str, Any]:
    """Return why calls failed, and which limits refused them, by index."""
    told: dict[str, Any] = {"failed": {place: str(error) for place, error in errors.items()}}
    limits = {place: e.limit for place, e in errors.items() if isinstance(e, CallRefused)}
    return {**told, "limits": limits} if limits else told


async def _all_decoded(kinds: Sequence[Any], parts: Sequence[str]) -> list[Any]:
    """Return the contexts of child runs; long ones are decoded in a thread."""
    encoded = iter(parts)
    if sum(map(len, parts)) <= LONG_CHARS and all(map(is_quick_json, parts)):
        return [_decoded(kind, encoded) if kind else None for kind in kinds]
    return [await asyncio.to_thread(_decoded, kind, encoded) if kind else None for kind in kinds]


def _decoded(kind: Any, encoded: Iterator[str]) -> Any:
    try:
        text = next(encoded, None)
        if text is None:
            raise ValueError("it is missing")
        return read_json(text, CONTEXT) if kind.get("kind") == "json" else text
    except TooLarge as error:
        raise CallRefused(
            f"the context of rlm_query is too large to read as JSON: {error}; pass a string",
            limit="size",
        ) from error
    except (ValueError, AttributeError) as error:
        raise CallRefused(
            f"the context of rlm_query could not be read: {error}", limit="kind"
        ) from error


def _check_note(text: str) -> None:
    try:
        read_json(text, NOTE)
    except ValueError as error:
        raise CallRefused(f"a note must be a JSON value: {error}", limit="kind") from error


def _digest(*texts: str) -> str:
    whole = "\0".join(texts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:32]


async def _as_text(context: Any) -> str:
    if isinstance(context, str):
        return context
    if isinstance(context, StoredContext):
        return await asyncio.to_thread(context.text)
    return await asyncio.to_thread(lambda: json.dumps(context, ensure_ascii=False))
