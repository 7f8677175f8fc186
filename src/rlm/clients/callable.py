"""A plain function as a model: sync or async, whole answers or a generator of pieces.

The first parameter decides what the function receives: a `Request` if annotated so (or named
`request`), a list of chat messages if annotated as a list (or named `messages`), else the prompt as
one text. Other parameters receive values by name: `model`, `max_output_tokens`, `timeout_seconds`,
`tools`, and every sampling setting.
"""

import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Literal, get_origin

import msgspec
from msgspec import Struct

from rlm.clients._adapters import Flow, Threads, each_within, model_error, reply_of
from rlm.clients._chat import ChatDialect
from rlm.clients._estimate import BYTES_A_TOKEN, message_text
from rlm.clients._fields import parse
from rlm.errors import ConfigError, ModelError
from rlm.messages import ModelInfo, Reply, Request

__all__ = ["CallableClient"]

MAX_THREADS = 32
Form = Literal["prompt", "messages", "request"]


class CallableClient:
    """A client that answers with what `function` returns: a text, a `Reply`, or a dict.

    A dict has the fields of a Reply, or is a chat-completions response. Sync functions run in
    threads, `threads` at a time; a late one cannot be stopped, but is no longer awaited. `identity`
    identifies the function's behaviour to a reply cache, which requires it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        info: ModelInfo | None = None,
        threads: int = MAX_THREADS,
        identity: str | None = None,
    ) -> None:
        if not callable(function):
            kind = type(function).__name__
            raise ConfigError(
                "a model must be a name such as 'openai/gpt-5-mini', a client or a function, not "
                f"{kind}"
            )
        if threads < 1:
            raise ConfigError(f"threads must be at least 1, not {threads}")
        self.identity = identity
        self._function = function
        self._signature = _Signature.of(function)
        self._info = info or ModelInfo()
        self._threads: Threads[Any] = Threads(threads, "rlm-callable")

    def __repr__(self) -> str:
        return f"CallableClient({self._signature.name})"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Call the function once, and return its reply."""
        return await reply_of(self.stream(request, timeout_seconds=timeout_seconds))

    def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the pieces of a generator, or a whole answer at once; then the reply."""
        pieces = self._pieces(request, timeout_seconds)
        return each_within(pieces, timeout_seconds, request.model, self._late)

    def info(self, model: str) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """Tell running functions that no caller is waiting; one that ignores it just finishes."""
        self._threads.give_up_all()

    def _late(self) -> str:
        held = self._threads.abandoned
        return f"; {held} earlier calls that never returned occupy its threads" if held else ""

    async def _pieces(
        self, request: Request, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        gathered = _Gathered(request)
        arguments = self._signature.arguments(request, timeout_seconds)
        try:
            async with contextlib.aclosing(self._called(*arguments)) as items:
                async for item in items:
                    if piece := gathered.add(item):
                        yield piece
                    if gathered.full:
                        break
        except (ModelError, ConfigError):
            raise
        except Exception as error:
            raise model_error(request.model, error) from error
        reply = gathered.reply()
        if reply.text and not gathered.text:
            yield reply.text
        yield reply

    async def _called(self, given: Any, named: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield what the function returns, item by item, whether on the loop or in a thread."""
        if not self._signature.on_loop:
            async for item in self._threads.stream(
                lambda flow: _in_thread(flow, self._function, given, named)
            ):
                if not isinstance(item, _Awaited):
                    if item is not _NOTHING:
                        yield item
                    continue
                async for piece in _on_loop(item.value):
                    yield piece
            return
        async for piece in _on_loop(self._function(given, **named)):
            yield piece


class _Awaited(Struct, frozen=True):
    """A coroutine or async generator that a sync function returned; it finishes on the loop."""

    value: Any


_NOTHING = object()
"""Returned by a generator's thread once all its pieces have been sent."""


def _in_thread(
    flow: Flow, function: Callable[..., Any], given: Any, named: dict[str, Any]
) -> object:
    """Call the function, and send a generator's pieces until it ends or no caller is waiting."""
    value = function(given, **named)
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        return _Awaited(value)
    if not inspect.isgenerator(value):
        return value
    try:
        for piece in value:
            if not flow.send(piece):
                break
    finally:
        value.close()
    return _NOTHING


async def _on_loop(value: Any) -> AsyncGenerator[Any, None]:
    if inspect.isasyncgen(value):
        try:
            async for piece in value:
                yield piece
        finally:
            await value.aclose()
        return
    yield await value if inspect.isawaitable(value) else value


class _Gathered:
    """Collects the items of one call into a reply within the output cap."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._room_bytes = request.max_output_tokens * BYTES_A_TOKEN
        self.text = ""
        self.last: Any = None
        self.full = False

    def add(self, item: Any) -> str:
        """Add an item, and return the text it adds, within the cap."""
        self.last = item
        if not isinstance(item, str):
            return ""
        data = item.encode("utf-8", "surrogatepass")
        self.full = len(data) > self._room_bytes
        piece = data[: self._room_bytes].decode("utf-8", "ignore") if self.full else item
        self._room_bytes -= min(len(data), self._room_bytes)
        self.text += piece
        return piece

    def reply(self) -> Reply:
        """Return the last item if it is a reply, else the collected text, without usage."""
        if not isinstance(self.last, str):
            reply = _as_reply(self._request.model, self.last)
            return reply if reply.text else msgspec.structs.replace(reply, text=self.text)
        finish: Literal["length", "stop"] = "length" if self.full else "stop"
        return Reply(text=self.text, finish_reason=finish, model=self._request.model)


def _as_reply(model: str, value: Any) -> Reply:
    """Return a Reply from a Reply, its dict, or a chat-completions response or SDK object."""
    if isinstance(value, Reply):
        return value
    if callable(dump := getattr(value, "model_dump", None)):
        value = dump()
    try:
        if isinstance(value, Mapping):
            if "choices" in value:
                return ChatDialect().reply(dict(value))
            return msgspec.convert({"model": model, **value}, Reply)
    except (ValueError, msgspec.ValidationError) as error:
        raise ModelError(
            f"{model}: the function returned a dict that is not a reply: {error}"
        ) from None
    kind = "nothing" if value is None else type(value).__name__
    raise ModelError(f"{model}: the function returned {kind}; return a str, a Reply or a dict")


class _Signature(Struct, frozen=True):
    """What a function takes."""

    name: str
    form: Form
    names: frozenset[str]
    takes_any: bool
    on_loop: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_Signature":
        name = str(getattr(function, "__name__", type(function).__name__))
        first, *others = _parameters(function, name)
        kinds = inspect.Parameter
        body = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        return cls(
            name=name,
            form=_form(first),
            names=frozenset(
                each.name
                for each in others
                if each.kind in {kinds.KEYWORD_ONLY, kinds.POSITIONAL_OR_KEYWORD}
            ),
            takes_any=any(each.kind is kinds.VAR_KEYWORD for each in others),
            on_loop=any(
                check(each)
                for check in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
                for each in (function, body)
            ),
        )

    def arguments(self, request: Request, timeout_seconds: float) -> tuple[Any, dict[str, Any]]:
        """Return the first argument, and the arguments passed by name."""
        chat = parse(ChatDialect().body(request, stream=False))
        offered = {
            **request.sampling,
            "model": request.model,
            "max_output_tokens": request.max_output_tokens,
            "timeout_seconds": timeout_seconds,
            "tools": chat.get("tools", []),
        }
        wanted = self.names | (request.sampling.keys() if self.takes_any else set())
        lost = request.sampling.keys() - wanted
        if lost and self.form != "request":
            raise ConfigError(
                f"sampling sets {min(lost)!r}, but {self.name}() does not take it: "
                f"add it as a parameter, or take the whole `request`"
            )
        named = {name: offered[name] for name in sorted(wanted) if name in offered}
        if self.form == "request":
            return request, named
        return (chat["messages"] if self.form == "messages" else _prompt(request)), named


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        found = list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError:  # an annotation that only a type checker can see
        found = list(inspect.signature(function).parameters.values())
    except ValueError:  # some builtins have no signature
        found = []
    if not found or found[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError(
            f"{name} takes no arguments: a model's function takes the prompt as its first"
        )
    return found


def _form(first: inspect.Parameter) -> Form:
    """Choose by the annotation if it is specific enough, else by the parameter's name."""
    kind = first.annotation
    if kind is Request or kind == "Request":
        return "request"
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, list | tuple):
        return "messages"
    if getattr(origin, "__name__", "") in {"Sequence", "Iterable", "Collection"}:
        return "messages"
    if kind is not str and first.name in {"messages", "request"}:
        return "messages" if first.name == "messages" else "request"
    return "prompt"


def _prompt(request: Request) -> str:
    """Return a single message unchanged; several one below the other, each under its role."""
    if len(request.messages) == 1:
        return message_text(request.messages[0])
    return "\n\n".join(f"[{each.role}]\n{message_text(each)}" for each in request.messages)
