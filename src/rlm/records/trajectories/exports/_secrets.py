"""Remove keys and passwords from exports: a cell may have printed one."""

import re
from collections.abc import Callable
from typing import Any

from rlm._util.secret_values import SHORTEST_SECRET_CHARS, secrets_of_the_environment

__all__ = ["without_secrets"]

_HIDDEN = "[secret]"
_SHAPES = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|xox[abp])[-_](?=[-_A-Za-z]{0,80}\d)[-_A-Za-z0-9]{20,}"
    r"|\b(?:ghp_|gho_|github_pat_|hf_|AIza)[-_A-Za-z0-9]{30,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
    r"|(?i:(?<=bearer )|(?<=[?&]key=)|(?<=api_key=)|(?<=api-key: ))[-._~+/=\w]{16,}"
    r"|(?<=://)[^/\s@:]{1,200}:[^/\s@]{1,200}(?=@)"
)
"""Matches only what must be a key: a name such as `sk_learn_pipeline_of_steps` has to stay in code.

All repetitions are bounded, or begin where another ends, so hostile texts take no longer.
"""


def without_secrets() -> Callable[[Any], Any]:
    """Return a function that copies plain data and hides secrets in its texts.

    Secrets are values of environment variables such as `…_API_KEY`, and what looks like a key.
    """
    known = {each for each in secrets_of_the_environment() if len(each) >= SHORTEST_SECRET_CHARS}
    longest_first = sorted(known, key=len, reverse=True)

    def hide(value: Any) -> Any:
        if isinstance(value, str):
            for secret in longest_first:
                value = value.replace(secret, _HIDDEN)
            return _SHAPES.sub(_HIDDEN, value)
        if isinstance(value, dict):
            return {key: hide(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [hide(each) for each in value]
        return value

    return hide
