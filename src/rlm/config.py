"""The configuration of a run: a frozen value. A child's is `replace(parent, …)`."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct, field, json
from msgspec.structs import replace

from rlm._util.public_calls import SuggestsNames
from rlm._util.text import no_such
from rlm.citations import CITE_LINE
from rlm.errors import ConfigError
from rlm.limits import Limits, limits_of

__all__ = [
    "WEAK",
    "CallRules",
    "Guards",
    "RunChanges",
    "RunConfig",
    "as_asked",
    "checked_samples",
    "recordable",
]

MAX_SAMPLES = 64

Strategy = Literal["rlm", "direct", "mapreduce", "auto"]
Protocol = Literal["fences", "tools"]
Profile = Literal["frontier", "standard", "small", "tiny"]


class Guards(Struct, metaclass=SuggestsNames, frozen=True):
    """When an answer may end the run, and what to do with a model that is stuck.

    `confirm_final`: the model must confirm once a final beside code whose text no cell printed.
    `check_values`: so must a weak model for a short value that is neither printed nor in the
    context; if it submits such a number or code again, map/reduce looks for the answer.
    """

    require_repl_before_final: bool = False
    require_subcall_before_final: bool = False
    min_steps: int = 0
    auto_finalize_var: str | None = None
    invalid_response_limit: int = 5
    repl_error_limit: int | None = None
    fallback_code: str | None = None
    wrong_shape_limit: int | None = 3
    confirm_final: bool = True
    check_values: bool = True


class CallRules(Struct, metaclass=SuggestsNames, frozen=True):
    """How calls from cells behave; the reference engine's rules differ from ours.

    `failed_replies`: the text that stands for a failed call, with `{reason}` in it, by kind: "llm",
    "llm_batched", "rlm", "rlm_batched". Without one, a call raises CallFailed, and an item of a
    batch is a FailedReply. `child_model`: the model of child runs if a cell names none, instead of
    `sub_model`. `requires_prices`: whether `max_cost_usd` refuses a model of unknown price; if
    not, only the cost that its provider states is counted.
    """

    failed_replies: dict[str, str] = field(default_factory=dict)
    child_model: str | None = None
    requires_prices: bool = True


SENT_ONLY = ("extra_headers", "extra_query")
"""Sampling options that may hold keys under any name."""

SECRET_OPTION = re.compile(
    r"authorization|credential|password|secret|api_?key|(access|auth|bearer)_?token", re.IGNORECASE
)


KINDS: dict[str, tuple[Any, str]] = {
    "limits": (Limits, "Limits(…) or a dict"),
    "guards": (Guards, "Guards(…)"),
    "call_rules": (CallRules, "CallRules(…)"),
    "system_prompt": ((str, type(None)), "a str"),
    "prologue": (str, "a str"),
    "setup_code": (str, "a str of Python code"),
    "preview_chars": (int, "an integer"),
    "sampling": (dict, "a dict"),
    "sub_sampling": (dict, "a dict"),
    "compaction_fraction": ((int, float), "a number"),
    "seed": (int, "an integer"),
}
"""The types of options that nothing else checks before a run begins."""


class RunConfig(Struct, frozen=True, kw_only=True):
    """Everything about a run except its query, its context and its collaborators."""

    model: str
    sub_model: str
    models: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    guards: Guards = field(default_factory=Guards)
    strategy: Strategy = "rlm"
    protocol: Protocol = "fences"
    profile: Profile | None = None
    system_prompt: str | None = None
    prologue: str = ""
    setup_code: str = ""
    orchestrator: bool = True
    preview_chars: int = 0
    sampling: dict[str, Any] = field(default_factory=dict)
    sub_sampling: dict[str, Any] = field(default_factory=dict)
    compaction: bool = True
    compaction_fraction: float = 0.85
    call_rules: CallRules = field(default_factory=CallRules)
    seed: int = 0

    @property
    def allowed_models(self) -> tuple[str, ...]:
        """The models that cells may use: only those that the caller listed."""
        return tuple(dict.fromkeys((self.model, self.sub_model, *self.models)))

    def __post_init__(self) -> None:
        for name, known in (("strategy", Strategy), ("protocol", Protocol), ("profile", Profile)):
            value, choices = getattr(self, name), get_args(known)
            if value not in choices and not (name == "profile" and value is None):
                raise ConfigError(no_such(name, value, choices))
        for name, (kind, told) in KINDS.items():
            value = getattr(self, name)
            is_wrong = isinstance(value, bool) and kind is not bool  # True would count as 1
            if is_wrong or not isinstance(value, kind):
                raise ConfigError(f"{name} must be {told}, not {type(value).__name__}")
        if self.preview_chars < 0:
            raise ConfigError(f"preview_chars must be at least 0, not {self.preview_chars}")
        if not 0.0 < self.compaction_fraction <= 1.0:
            raise ConfigError(
                "compaction_fraction must be greater than 0 and at most 1, not "
                f"{self.compaction_fraction}"
            )
        for name in ("sampling", "sub_sampling"):
            try:
                json.encode(getattr(self, name))
            except (TypeError, ValueError, RecursionError, OverflowError) as error:
                raise ConfigError(f"{name} must be representable as JSON: {error}") from None


def recordable(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling options as records hold them: without headers, queries and keys."""
    return {
        name: recordable(value) if isinstance(value, Mapping) else value
        for name, value in sampling.items()
        if name not in SENT_ONLY and not SECRET_OPTION.search(str(name))
    }


WEAK: tuple[Profile, ...] = ("small", "tiny")
"""Models that read better than they write code; docs/decisions/0014-default-strategy.md."""

FIRST_LOOK_CHARS = 400
"""Three quarters come from the beginning of the context, one from its end."""


def as_asked(config: RunConfig, profile: Profile, left_open: Collection[str]) -> RunConfig:
    """Return the configuration for `ask`, which chooses what the caller left open to answer well.

    Elsewhere, the defaults isolate: no content in the first message, and always the loop.
    """
    usual = {
        "strategy": "auto" if profile in WEAK else "rlm",
        "preview_chars": FIRST_LOOK_CHARS,
    }
    return replace(config, **{name: usual[name] for name in left_open})


def checked_samples(samples: Any) -> int:
    """Return the number of samples; ConfigError if it is not one."""
    if isinstance(samples, bool) or not isinstance(samples, int):
        raise ConfigError(f"samples must be an integer, not {samples!r}")
    if not 1 <= samples <= MAX_SAMPLES:
        raise ConfigError(f"samples must be from 1 to {MAX_SAMPLES}, not {samples}")
    return samples


class RunChanges(Struct, frozen=True, kw_only=True):
    """The changes of one run to the configuration; None changes nothing.

    Sampling options are added to the configured ones and override them. The value None removes
    an option. `cite` asks the model for citations.
    """

    limits: Limits | Mapping[str, Any] | None = None
    sampling: Mapping[str, Any] | None = None
    sub_sampling: Mapping[str, Any] | None = None
    cite: bool = False

    def applied_to(self, config: RunConfig) -> RunConfig:
        """Return the configuration of the run."""
        given: dict[str, Any] = {}
        if self.limits is not None:
            given["limits"] = limits_of(self.limits, config.limits)
        if self.cite:
            given["prologue"] = "\n\n".join(filter(None, (config.prologue, CITE_LINE)))
        for name in ("sampling", "sub_sampling"):
            options = getattr(self, name)
            if options is None:
                continue
            if not isinstance(options, Mapping):
                raise ConfigError(f"{name} must be a dict, not {type(options).__name__}")
            merged = {**getattr(config, name), **options}
            given[name] = {key: value for key, value in merged.items() if value is not None}
        return replace(config, **given) if given else config
