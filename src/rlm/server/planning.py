"""From a request to what is to be done: by which model, on which route, over which context."""

from contextlib import ExitStack
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.limited import in_thread, owner
from rlm.api import RLM
from rlm.calls.billing import worst_case
from rlm.config import RunConfig
from rlm.context import StoredContext, store_context
from rlm.engine.run import Task
from rlm.engine.strategies import Relayed
from rlm.errors import ConfigError
from rlm.limits import Amount, Limits, picodollars
from rlm.messages import Request
from rlm.server.conversation import (
    OF_TOOLS,
    Asked,
    Split,
    Spoken,
    as_messages,
    as_spoken,
    as_tools,
    files_named,
    has_images,
    is_large,
    limits_of,
    split,
    with_tools,
)
from rlm.server.engines import Engines, unknown_model
from rlm.server.errors import bad_request
from rlm.server.files import Files
from rlm.server.settings import Settings
from rlm.server.tokens import Token
from rlm.typed import aanswer_type

__all__ = ["Plan", "Planner"]

SMALL_CHARS = 1_000_000
SHOWN_QUERY_CHARS = 2_000


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that was decided. `wanted` is what is held back of a token's budget.

    `cleanup` lets go of what was laid out for this run only.
    """

    asked: Asked
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
    """Reads only what the operator decided, and what was uploaded."""

    def __init__(self, settings: Settings, engines: Engines, files: Files) -> None:
        self._settings = settings
        self._engines = engines
        self._files = files

    async def plan(self, asked: Asked, token: Token) -> Plan:
        owner.set(token.name)  # Of work in processes with limits, nobody gets all places.
        model, has_repl = self._engines.named(asked.model)
        if not token.allows(asked.model, model):
            raise unknown_model(asked.model)
        engine = self._engines.get(model, asked.rlm.environment)
        limits = limits_of(asked.rlm.limits, self._settings.limits, asked.prefix)
        config = replace(engine.config, limits=limits)
        spoken = as_spoken(asked.messages)
        if asked.rlm.query is not None:
            spoken.append(Spoken("user", asked.rlm.query))
        if self._route(asked, spoken, has_repl) == "direct":
            return self._direct(asked, token, engine, config, spoken)
        return await self._run(asked, token, engine, config, spoken)

    def _route(
        self, asked: Asked, spoken: list[Spoken], has_repl: bool
    ) -> Literal["rlm", "direct"]:
        """Straight to the model if it is small, or if that is what was asked for."""
        wanted = asked.rlm.route or "auto"
        ours = bool(asked.rlm.context is not None or asked.rlm.file_ids or asked.rlm.run_id)
        ours = ours or bool(asked.rlm.strategy) or bool(files_named(asked.messages))
        if not has_repl and (wanted == "rlm" or ours):
            raise bad_request(
                f"{asked.model} is asked directly; for a context, files, a strategy or a run_id, "
                f"name the model rlm/{asked.model}",
                "model",
            )
        if not has_repl:
            return "direct"
        if wanted == "direct" and ours:
            raise bad_request(
                "on the direct route messages go to the model as they are: leave out context, "
                "file_ids, strategy and run_id, or the route",
                f"{asked.prefix}route",
            )
        if wanted != "auto":
            return wanted
        if ours:
            return "rlm"
        large = is_large(spoken, self._settings.context_over)
        return "rlm" if large and not has_images(asked.messages) else "direct"

    # -- straight to the model ---------------------------------------------------------------

    def _direct(
        self, asked: Asked, token: Token, engine: RLM, config: RunConfig, spoken: list[Spoken]
    ) -> Plan:
        limits = config.limits
        cap = min(asked.max_output_tokens or limits.step_output_tokens, limits.step_output_tokens)
        sampling = {**engine.config.sampling, **asked.sampling}
        if asked.stops:
            sampling["stop"] = list(asked.stops)
        if asked.format is not None:
            sampling["response_format"] = _as_sent(asked)
        relayed = Relayed(
            messages=as_messages(asked.messages),
            max_output_tokens=cap,
            sampling=sampling,
            tools=as_tools(asked.tools),
        )
        request = Request(
            model=config.model,
            messages=relayed.messages,
            max_output_tokens=cap,
            tools=relayed.tools,
        )
        worst = worst_case(request, engine._house.services().calls.info(config.model))
        query = split(spoken, SHOWN_QUERY_CHARS).query[:SHOWN_QUERY_CHARS]
        return Plan(
            asked=_without_texts(asked),
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
        self, asked: Asked, token: Token, engine: RLM, config: RunConfig, spoken: list[Spoken]
    ) -> Plan:
        _refuse_what_only_models_can(asked)
        schema = asked.schema
        if schema is not None:
            await _check_schema(schema)
        cleanup = ExitStack()
        try:
            parts = split(spoken, self._settings.context_over)
            context = await self._context(asked, token, parts, cleanup)
        except BaseException:
            cleanup.close()
            raise
        sampling = {**config.sampling, **asked.sampling}
        config = replace(config, sampling=sampling, strategy=asked.rlm.strategy or "rlm")
        return Plan(
            asked=_without_texts(asked),
            token=token,
            engine=engine,
            route="rlm",
            task=Task(parts.query, context, prologue=parts.prologue),
            config=config,
            wanted=_of_limits(config.limits),
            cleanup=cleanup,
        )

    async def _context(
        self, asked: Asked, token: Token, parts: Split, cleanup: ExitStack
    ) -> StoredContext:
        """What was handed over as such, what was uploaded, and what was too large for a prompt."""
        named = [*(asked.rlm.file_ids or ()), *files_named(asked.messages)]
        files = list(dict.fromkeys(named))
        given = asked.rlm.context
        if files:
            paths = await self._files.lay_out(token, files, cleanup, f"{asked.prefix}file_ids")
            if given is None and not parts.contexts:
                return await in_thread(store_context, paths if len(paths) > 1 else paths[0])
            texts = await in_thread(_texts, paths)
            contexts = {"context": given, "files": texts, **parts.contexts}
            return await in_thread(
                store_context, {k: v for k, v in contexts.items() if v is not None}
            )
        if given is not None:
            value: Any = {"context": given, **parts.contexts} if parts.contexts else given
        else:
            value = parts.context
        if value is None or (isinstance(value, str) and len(value) < SMALL_CHARS):
            return store_context(value)
        return await in_thread(store_context, value)


def _without_texts(asked: Asked) -> Asked:
    """What a run still needs of its request; its texts are in its task, and need not be kept."""
    ours = replace(asked.rlm, query=None, context=None)
    return replace(asked, messages=[], tools=[], rlm=ours)


def _texts(paths: list[Any]) -> dict[str, str]:
    return {path.name: store_context(path).text() for path in paths}


def _refuse_what_only_models_can(asked: Asked) -> None:
    if asked.tools or with_tools(asked.messages) or asked.sampling.keys() & set(OF_TOOLS):
        raise bad_request(
            "tools go to the model on the direct route only, and this request needs a REPL: send "
            "rlm.route='direct' if the model can hold all of it, or leave out the tools",
            "tools",
            "tools_not_supported",
        )
    if has_images(asked.messages):
        raise bad_request(
            "pictures go to the model on the direct route only: send rlm.route='direct'",
            "messages",
            "images_not_supported",
        )


async def _check_schema(schema: dict[str, Any]) -> None:
    try:
        await aanswer_type(schema)
    except ConfigError as error:
        raise bad_request(f"this schema can't be kept: {error}", "response_format") from error


def _as_sent(asked: Asked) -> Any:
    plain: dict[str, Any] = msgspec.to_builtins(asked.format)
    if (holder := plain.pop("json_schema", None)) is not None:
        plain["json_schema"] = {k: v for k, v in holder.items() if v is not None}
    return plain


def _of_limits(limits: Limits) -> Amount | None:
    """What a run with these limits can use at most; None where one of them is open."""
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
