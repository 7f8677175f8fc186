"""`rlm doctor`: what works here, what is missing, and what to do."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rlm.cli.dotenv import Settings

__all__ = ["doctor"]

SHOWN_MODELS = 5
ADVICE = ". Use environment='auto'"
"""What `local` adds to its problem; here it is clear."""


@click.command(short_help="Check this installation: models, keys, sandbox.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check this installation: models, keys, servers, and where code runs.

    No provider is contacted, and no key is shown. Exit code 1 means that `rlm ask` would fail.
    """
    from rlm.cli import dotenv

    found = findings(dotenv.settings(os.environ, Path.cwd()))
    if as_json:
        click.echo(json.dumps(found))
    else:
        from rlm.cli._output import show_facts

        show_facts(report(found))
    ctx.exit(0 if found["ok"] else 1)


def findings(settings: "Settings") -> dict[str, Any]:
    """Return all findings as plain data."""
    import platform

    import msgspec

    import rlm
    from rlm._util import distribution
    from rlm.cli import _checks
    from rlm.cli._models import find_servers
    from rlm.wiring.registry import AUTO

    servers = find_servers(settings.variables, settings.taken)
    model = _checks.check_model(settings.variables, servers, settings.defaults, settings.taken)
    auto = _checks.check_auto()
    wanted = str(settings.defaults.values().get("environment", AUTO))
    problems = [
        _checks.check_limits(settings.defaults),
        None if wanted == AUTO else _checks.check_configured(wanted),
    ]
    is_runnable = wanted != AUTO or auto.chosen is not None
    found: dict[str, Any] = {
        "ok": model.problem is None and is_runnable and not any(problems),
        "version": rlm.__version__,
        "distribution": distribution.own_name(),
        "other_distributions": distribution.strangers(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "model": msgspec.to_builtins(model),
        "keys": _checks.check_keys(settings.variables),
        "addresses": _checks.check_addresses(settings.variables),
        "dotenv": {
            "path": settings.path,
            "taken": list(settings.taken),
            "ignored": dict(settings.ignored),
        },
        "settings": {
            "user": str(settings.defaults.user.path) if settings.defaults.user.values else None,
            "project": settings.defaults.project.path and str(settings.defaults.project.path),
            "ignored": dict(settings.defaults.project.ignored),
            "stored_keys": sorted(settings.defaults.stored),
            "notice": settings.notice,
        },
        "servers": msgspec.to_builtins(servers),
        "environment": auto.chosen,
        "environments": msgspec.to_builtins(auto.candidates),
        "extras": _checks.check_extras(),
        "adapters": _checks.check_adapters(),
        "plugins": _checks.check_plugins(),
    }
    advice = [
        *filter(None, problems),
        *_checks.check_settings(settings.variables, settings.defaults, model.default),
        *_checks.check_windows(servers),
    ]
    return {**found, "to_do": to_do(found, advice), "optional": optional(found)}


def to_do(found: dict[str, Any], advice: Sequence[str] = ()) -> list[str]:
    """Return what to do next, most important first."""
    from rlm.environments.auto import nothing_isolates

    todo = []
    if others := found["other_distributions"]:
        own = found["distribution"]
        todo.append(
            f"{' and '.join(others)} also installed files into the package rlm, so either may be "
            f"broken: pip uninstall {' '.join(others)} {own}, then install {own} again"
        )
    if found["environment"] is None:
        problems = {name: each["problem"] for name, each in found["environments"].items()}
        todo.append(f"Code cannot run: {nothing_isolates(problems)}")
    if problem := found["model"]["problem"]:
        todo.append(f"{problem} (or choose another model with -m or RLM_MODEL)")
    if found["model"]["fallback"]:
        todo.append(
            "For a real model, run `rlm setup`, set a key such as OPENAI_API_KEY, set "
            "OPENAI_BASE_URL to a server with OpenAI's interface, or set RLM_MODEL=provider/model."
        )
    return [*todo, *advice]


def optional(found: dict[str, Any]) -> list[str]:
    """Return what else could be installed, each with its command."""
    from rlm._util.distribution import install_command
    from rlm.cli._checks import EXTRAS

    missing = [name for name, there in found["extras"].items() if not there]
    return [f"For {EXTRAS[name][1]}: {install_command(name)}" for name in missing]


def report(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the findings as named lines for people."""
    from rlm.wiring.registry import OFFLINE_MODEL

    model = found["model"]
    sub = "" if model["sub_model"] == model["default"] else f"; calls: {model['sub_model']}"
    works = "`rlm ask` is ready to use." if found["ok"] else "`rlm ask` would fail."
    if found["ok"] and model["default"] == OFFLINE_MODEL:
        works = "`rlm ask` lists passages; for answers, run `rlm setup`."
    return [
        ("rlm", f"{found['version']}, Python {found['python']}, {found['platform']}"),
        ("model", f"{model['default']}, because {model['why']}{sub}"),
        ("keys", _keys(found["keys"])),
        *(("address", _address(*each)) for each in found["addresses"].items()),
        (".env", _dotenv(found["dotenv"])),
        ("settings", _settings(found["settings"])),
        *(("server", _server(server)) for server in found["servers"]),
        *_environments(found["environment"], found["environments"]),
        ("extras", _join_names(found["extras"], "installed", "not installed")),
        ("adapters", adapters_line(found["adapters"])),
        *(("plugin", plugin_line(each)) for each in found["plugins"]),
        *(("optional", text) for text in found["optional"]),
        *(("to do", text) for text in found["to_do"]),
        ("result", works),
    ]


def _keys(facts: dict[str, bool]) -> str:
    names = [name for name, is_set in facts.items() if is_set]
    return ", ".join(names) if names else "none; `rlm keys set PROVIDER` stores one"


def _address(variable: str, facts: dict[str, Any]) -> str:
    if not facts["host"]:
        return f"{variable} is not an address such as https://host:8000/v1"
    return f"{variable}: requests to {', '.join(facts['providers'])} go to {facts['host']}"


def _environments(chosen: str | None, found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what `auto` chooses, then a line for every candidate."""
    lines = [("environment", f"{chosen} (auto)" if chosen else "auto finds none here")]
    names = list(found)
    for name, facts in found.items():
        is_later = chosen is not None and names.index(name) > names.index(chosen)
        lines.append(("", f"{name}: {'not needed here; ' * is_later}{_candidate(facts)}"))
        lines += [("", f"not active in {name}: {text}") for text in facts["missing"]]
    return lines


def _candidate(facts: dict[str, Any]) -> str:
    if facts["works"] is None:
        return "not tried"
    if not facts["works"]:
        return f"does not work: {facts['problem'].partition(ADVICE)[0]}"
    layers = f"; layers: {', '.join(facts['layers'])}" if facts["layers"] else ""
    return f"works{layers}"


def _join_names(facts: dict[str, bool], yes: str, no: str) -> str:
    parts = []
    for word, wanted in ((yes, True), (no, False)):
        if names := [name for name, there in facts.items() if there is wanted]:
            parts.append(f"{word}: {', '.join(names)}")
    return "; ".join(parts)


def adapters_line(facts: dict[str, bool]) -> str:
    """Return the adapters, and how to install missing ones."""
    from rlm._util.distribution import install_command

    return "; ".join(
        f"{name}: installed" if there else f"{name}: {install_command(name)}"
        for name, there in facts.items()
    )


def plugin_line(facts: dict[str, Any]) -> str:
    """What a plugin offers, or why it can't be loaded."""
    offered = f"{facts['kind']} {facts['name']}, from {facts['distribution']}"
    return facts["problem"] or offered


def _dotenv(facts: dict[str, Any]) -> str:
    if facts["path"] is None:
        return "none in this folder"
    taken = ", ".join(facts["taken"]) or "nothing"
    ignored = "".join(f"; {name} ignored: {why}" for name, why in facts["ignored"].items())
    return f"{facts['path']}, taken: {taken}{ignored}"


def _settings(facts: dict[str, Any]) -> str:
    files = [each for each in (facts["user"], facts["project"]) if each]
    text = " and ".join(files) or "none"
    text += "".join(f"; {name} ignored: {why}" for name, why in facts["ignored"].items())
    if facts["stored_keys"]:
        text += f"; stored keys: {', '.join(facts['stored_keys'])}"
    return f"{text}; {facts['notice']}" if facts["notice"] else text


def _server(facts: dict[str, Any]) -> str:
    if not facts["answers"]:
        return f"{facts['provider']} does not answer at {facts['address']}"
    shown = ", ".join(facts["models"][:SHOWN_MODELS]) or "no model loaded"
    more = len(facts["models"]) - SHOWN_MODELS
    also = f" and {more} more" if more > 0 else ""
    return f"{facts['provider']} answers at {facts['address']}: {shown}{also}"
