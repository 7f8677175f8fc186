"""Turns a request into a plan: which model, which route, which context."""

from contextlib import ExitStack
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.limited import in_thread, owner
from rlm.api import RLM
from rlm.calls.billing import worst_case
from rlm.config import RunChanges, RunConfig
from rlm.context import EncodedJson, StoredContext, store_context, store_encoded
from rlm.engine.answer_types import aanswer_type
from rlm.engine.strategies import Relayed
from rlm.engine.task import Task
from rlm.errors import ConfigError
from rlm.limits import Amount, Limits, picodollars
from rlm.messages import Request
from rlm.server.conversation import (
    OF_TOOLS,
    AnswerRequest,
    Split,
    TextMessage,
    as_messages,
    as_tools,
    files_named,
    has_images,
    is_large,
    limits_of,
    split,
    text_messages,
    with_tools,
)
from rlm.server.engines import Engines, unknown_model
from rlm.server.errors import bad_request
from rlm.server.files import Files
from rlm.server.settings import Settings
from rlm.server.tokens import Token

__all__ = ["Plan", "Planner"]

SMALL_CHARS = 1_000_000
SHOWN_QUERY_CHARS = 2_000


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that was decided. `wanted` is what to reserve of a token's budget.

    `cleanup` removes what was created only for this run.
    """

    request: AnswerRequest
    token: Token
    engine: RLM
    route: Literal["rlm", "direct"]
    task: Task
    config: RunConfig
    wanted: Amount | None
    relayed: Relayed | None = None
    cleanup: ExitStack = field(default_factory=ExitStack)

    @property
    def limits(self) -> Limits:
        return self.config.limits


class Planner:
    """Makes plans from requests, the operator's settings and uploaded files."""

    def __init__(self, settings: Settings, engines: Engines, files: Files) -> None:
        self._settings = settings
        self._engines = engines
        self._files = files

    async def plan(self, request: AnswerRequest, token: Token) -> Plan:
        owner.set(token.name)  # Tokens share the processes with limits.
        model, has_repl = self.resolve(request, token)
        engine = self._engines.get(model, request.rlm.environment)
        limits = limits_of(request.rlm.limits, self._settings.limits, request.prefix)
        config = replace(engine.config, limits=limits)
        texts = text_messages(request.messages)
        if request.rlm.query is not None:
            texts.append(TextMessage("user", request.rlm.query))
        if self._route(request, texts, has_repl) == "direct":
            return self._direct(request, token, engine, config, texts)
        return await self._run(request, token, engine, config, texts)

    def resolve(self, request: AnswerRequest, token: Token) -> tuple[str, bool]:
        """Return the model's own name, and whether it has a REPL; ApiError if it is unknown."""
        model, has_repl = self._engines.resolve(request.model)
        if not token.allows(request.model, model):
            raise unknown_model(request.model)
        return model, has_repl

    def _route(
        self, request: AnswerRequest, texts: list[TextMessage], has_repl: bool
    ) -> Literal["rlm", "direct"]:
        """Choose the direct route if the request is small, or asks for it."""
        wanted = request.rlm.route or "auto"
        ours = bool(request.rlm.context is not None or request.rlm.file_ids or request.rlm.run_id)
        ours = ours or bool(request.rlm.strategy) or bool(files_named(request.messages))
        if not has_repl and (wanted == "rlm" or ours):
            raise bad_request(
                f"{request.model} answers directly; for a context, files, a strategy or a run_id, "
                f"name the model rlm/{request.model}",
                "model",
            )
        if not has_repl:
            return "direct"
        if wanted == "direct" and ours:
            raise bad_request(
                "on the direct route, messages go to the model unchanged: leave out context, "
                "file_ids, strategy and run_id, or the route",
                f"{request.prefix}route",
            )
        if wanted != "auto":
            return wanted
        if ours:
            return "rlm"
        large = is_large(texts, self._settings.context_over)
        return "rlm" if large and not has_images(request.messages) else "direct"

    # -- straight to the model ---------------------------------------------------------------

    def _direct(
        self,
        request: AnswerRequest,
        token: Token,
        engine: RLM,
        config: RunConfig,
        texts: list[TextMessage],
    ) -> Plan:
        limits = config.limits
        cap = min(request.max_output_tokens or limits.step_output_tokens, limits.step_output_tokens)
        asked = dict(request.sampling)
        if request.stops:
            asked["stop"] = list(request.stops)
        if request.format is not None:
            asked["response_format"] = _as_sent(request)
        sampling = RunChanges(sampling=asked).applied_to(config).sampling
        relayed = Relayed(
            messages=as_messages(request.messages),
            max_output_tokens=cap,
            sampling=sampling,
            tools=as_tools(request.tools),
        )
        model_request = Request(
            model=config.model,
            messages=relayed.messages,
            max_output_tokens=cap,
            tools=relayed.tools,
        )
        worst = worst_case(model_request, engine.runner.resources.info(config.model))
        query = split(texts, SHOWN_QUERY_CHARS).query[:SHOWN_QUERY_CHARS]
        return Plan(
            request=_without_texts(request),
            token=token,
            engine=engine,
            route="direct",
            task=Task(query, store_context(None)),
            config=config,
            wanted=_smaller(worst, limits),
            relayed=relayed,
        )

    # -- with a REPL -------------------------------------------------------------------------

    async def _run(
        self,
        request: AnswerRequest,
        token: Token,
        engine: RLM,
        config: RunConfig,
        texts: list[TextMessage],
    ) -> Plan:
        _refuse_what_only_models_can(request)
        schema = request.schema
        if schema is not None:
            await _check_schema(schema)
        cleanup = ExitStack()
        try:
            parts = split(texts, self._settings.context_over)
            context = await self._context(request, token, parts, cleanup)
        except BaseException:
            cleanup.close()
            raise
        # `stop` and the cap apply to the answer: in a step, they would cut off code.
        config = RunChanges(sampling=request.sampling).applied_to(config)
        config = replace(config, strategy=request.rlm.strategy or "rlm")
        return Plan(
            request=_without_texts(request),
            token=token,
            engine=engine,
            route="rlm",
            task=Task(parts.query, context, prologue=parts.prologue),
            config=config,
            wanted=_of_limits(config.limits),
            cleanup=cleanup,
        )

    async def _context(
        self, request: AnswerRequest, token: Token, parts: Split, cleanup: ExitStack
    ) -> StoredContext:
        """Collect the given context, uploaded files, and what is too large for a prompt."""
        named = [*(request.rlm.file_ids or ()), *files_named(request.messages)]
        files = list(dict.fromkeys(named))
        given: Any = request.rlm.context  # EncodedJson, if it was decoded in another process
        if files:
            paths = await self._files.link_files(token, files, cleanup, f"{request.prefix}file_ids")
            if given is None and not parts.contexts:
                return await in_thread(store_context, paths if len(paths) > 1 else paths[0])
            texts = await in_thread(_texts, paths)
            beside = {"files": texts, **parts.contexts}
        else:
            beside = dict(parts.contexts)
        if isinstance(given, EncodedJson):
            return await in_thread(store_encoded, given, beside)
        value: Any = given
        if files or (given is not None and beside):
            value = {"context": given, **beside} if given is not None else beside
        elif given is None:
            value = parts.context
        if value is None or (isinstance(value, str) and len(value) < SMALL_CHARS):
            return store_context(value)
        return await in_thread(store_context, value)


def _without_texts(request: AnswerRequest) -> AnswerRequest:
    """Return what a run still needs from its request; the texts are already in its task."""
    ours = replace(request.rlm, query=None, context=None)
    return replace(request, messages=[], tools=[], rlm=ours)


def _texts(paths: list[Any]) -> dict[str, str]:
    return {path.name: store_context(path).text() for path in paths}


def _refuse_what_only_models_can(request: AnswerRequest) -> None:
    if request.tools or with_tools(request.messages) or request.sampling.keys() & set(OF_TOOLS):
        raise bad_request(
            "tools work only on the direct route, and this request needs a REPL: send "
            "rlm.route='direct' if it all fits the model's window, or leave out the tools",
            "tools",
            "tools_not_supported",
        )
    if has_images(request.messages):
        raise bad_request(
            "pictures work only on the direct route: send rlm.route='direct'",
            "messages",
            "images_not_supported",
        )


async def _check_schema(schema: dict[str, Any]) -> None:
    try:
        await aanswer_type(schema)
    except ConfigError as error:
        raise bad_request(f"this schema can't be enforced: {error}", "response_format") from error


def _as_sent(request: AnswerRequest) -> Any:
    plain: dict[str, Any] = msgspec.to_builtins(request.format)
    if (holder := plain.pop("json_schema", None)) is not None:
        plain["json_schema"] = {k: v for k, v in holder.items() if v is not None}
    return plain


def _of_limits(limits: Limits) -> Amount | None:
    """Return the most that a run with these limits can use; None if there is no limit."""
    if limits.max_tokens is None and limits.max_cost_usd is None:
        return None
    most = 1 << 62
    money = most if limits.max_cost_usd is None else picodollars(limits.max_cost_usd)
    return Amount(0, most if limits.max_tokens is None else limits.max_tokens, money)


def _smaller(worst: Amount, limits: Limits) -> Amount:
    most = _of_limits(limits)
    if most is None:
        return worst
    tokens, money = min(worst.tokens, most.tokens), min(worst.picodollars, most.picodollars)
    return Amount(0, tokens, money)
