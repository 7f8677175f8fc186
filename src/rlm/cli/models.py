"""`rlm models`: the models that can be used here, which one is used now and why."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlm._util.text import UNKNOWN

if TYPE_CHECKING:
    from rlm.cli.dotenv import Settings
    from rlm.messages import ModelInfo, Price

__all__ = ["models"]

MAX_ROWS = 40
EXAMPLES = """\b
Examples:
  rlm models
  rlm models gpt-4.1
  rlm models 'groq/*' --json
  rlm models pull qwen3:8b
"""


class Models(click.Group):
    """A group whose own argument is optional: the name of a command is not taken for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.allow_interspersed_args = False
            args = ["", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=Models,
    epilog=EXAMPLES,
    short_help="List the models that can be used here.",
    invoke_without_command=True,
    context_settings={"allow_interspersed_args": True},
    subcommand_metavar="[pull NAME]",
)
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.pass_context
def models(ctx: click.Context, pattern: str | None, as_json: bool) -> None:
    """List the models that can be used here, and which one is used now.

    With PATTERN, search the table of known models instead: part of provider/model, or a pattern
    with *. Keys are never shown. Only servers on this machine and servers whose
    addresses are set in variables are contacted.
    """
    from rlm.cli import dotenv

    if ctx.invoked_subcommand is not None:
        return
    if pattern:
        ctx.exit(_search(pattern, as_json))
    found = findings(dotenv.settings(os.environ, Path.cwd()))
    if as_json:
        click.echo(json.dumps(found))
    else:
        _show(found)


@models.command(short_help="Download a model to the Ollama server on this machine.")
@click.argument("name")
@click.pass_context
def pull(ctx: click.Context, name: str) -> None:
    """Download the model NAME, such as qwen3:8b, to the Ollama server on this machine.

    An interrupted download resumes where it stopped.
    """
    from rlm.cli import dotenv
    from rlm.cli._pulling import pull_model

    ctx.exit(pull_model(name, dotenv.settings(os.environ, Path.cwd())))


def findings(settings: "Settings") -> dict[str, Any]:
    """Return everything that can be used, as plain data."""
    import msgspec

    from rlm import models
    from rlm.cli import _checks
    from rlm.cli._models import find_programs, find_servers

    variables = settings.variables
    servers = find_servers(variables, settings.taken)
    used = _checks.check_model(variables, servers, settings.defaults, settings.taken)
    rows = _usable(variables, servers)
    for name in dict.fromkeys((used.default, used.sub_model)):
        if all(row["model"] != name for row in rows):
            rows.insert(0, _facts(name, _info(name), "your settings"))
    return {
        "used": msgspec.to_builtins(used),
        "models": [{**row, "used": row["model"] == used.default} for row in rows],
        "keys": _checks.check_keys(variables),
        "servers": msgspec.to_builtins(servers),
        "adapters": _checks.check_adapters(),
        "plugins": [each for each in _checks.check_plugins() if each["kind"] == "client"],
        "programs": find_programs(),
        "advice": [
            *_checks.check_settings(settings.variables, settings.defaults, used.default),
            *_checks.check_windows(servers),
        ],
        "table": _source(models.source()),
    }


def _usable(variables: Any, servers: Any) -> list[dict[str, Any]]:
    """Return usable models in the order in which they would be chosen."""
    from rlm import models
    from rlm.wiring.providers import usable_key
    from rlm.wiring.registry import OFFLINE_MODEL, PROVIDERS

    rows = []
    for name, each in PROVIDERS.items():
        key = usable_key(each, variables)
        if key and each.default_model:
            info = models.about(name, each.default_model)
            rows.append(_facts(f"{name}/{each.default_model}", info, key))
    for server in servers:
        for model in server.models:
            info = models.about(server.provider, model)
            row = _facts(f"{server.provider}/{model}", info, server.address)
            rows.append({**row, "window_tokens": server.windows.get(model, info.window_tokens)})
    return [*rows, _facts(OFFLINE_MODEL, _info(OFFLINE_MODEL), "built in")]


def _info(model: str) -> "ModelInfo":
    from rlm import models
    from rlm.clients.offline import INFO
    from rlm.errors import ConfigError
    from rlm.wiring.registry import OFFLINE_MODEL, make_client, split_model

    if model == OFFLINE_MODEL:
        return INFO
    try:
        if split_model(model)[0] == "command":
            return make_client(model)[0].info(model)
        return models.about(*split_model(model))
    except ConfigError:
        return models.about("", model)


def _facts(model: str, info: "ModelInfo", origin: str) -> dict[str, Any]:
    return {
        "model": model,
        "window_tokens": info.window_tokens,
        "price": _price(info.price),
        "profile": info.profile,
        "from": origin,
    }


def _price(price: "Price | None") -> dict[str, Any] | None:
    """Return US dollars per million tokens."""
    if price is None:
        return None
    longer = price.long
    return {
        "input": price.input_per_million,
        "output": price.output_per_million,
        "cached": price.cached_per_million,
        "cache_write": price.cache_write_per_million,
        "above": None if longer is None else {"tokens": longer[0], **(_price(longer[1]) or {})},
    }


def _source(source: Any) -> dict[str, str]:
    return {name: getattr(source, name) for name in ("name", "version", "date", "licence")}


def _search(pattern: str, as_json: bool) -> int:
    from rlm import models
    from rlm.cli._errors import say

    rows = [_facts(name, info, "") for name, info in models.search(pattern)]
    for row in rows:
        del row["from"]
    source = models.source()
    if as_json:
        click.echo(json.dumps({"models": rows, "table": _source(source)}))
    elif rows:
        _show_rows(rows[:MAX_ROWS])
        more = len(rows) - MAX_ROWS
        if more > 0:
            say(f"{more} more; a longer pattern finds fewer, --json prints all.")
        say(f"From {source.name} {source.version}, {source.date}.")
    if not rows:
        return say(
            f"Error: no known model matches {pattern!r}; "
            "you can still use one that is not in the table"
        )
    return 0


# -- for people -----------------------------------------------------------------------------------


def _show(found: dict[str, Any]) -> None:
    from rlm.cli._output import show_facts

    _show_rows(found["models"])
    click.echo()
    show_facts(_report(found))


def _show_rows(rows: list[dict[str, Any]]) -> None:
    from rlm.cli._output import show_table

    head = ["", "model", "window", "$/M in, out", "profile", "from"]
    columns = slice(0, None) if "from" in rows[0] else slice(1, -1)
    shown = [_texts(row)[columns] for row in rows]
    name, right = (head[columns].index(each) for each in ("model", "window"))
    show_table(head[columns], shown, name=name, right=right)
    if any(row["price"] and row["price"]["above"] for row in rows):
        click.echo("+ long prompts cost more (--json shows from what length)")


def _texts(row: dict[str, Any]) -> list[str]:
    window = row["window_tokens"]
    shown = UNKNOWN if window is None else f"{window:,}"
    price = _price_text(row["price"])
    mark = "*" if row.get("used") else ""
    origin = row.get("from", "").removeprefix("http://").removesuffix("/v1")
    return [mark, row["model"], shown, price, row["profile"], origin]


def _price_text(price: dict[str, Any] | None) -> str:
    if price is None:
        return UNKNOWN
    if price["input"] == price["output"] == 0:
        return "free"
    return f"{price['input']:g}, {price['output']:g}" + (" +" if price["above"] else "")


def _report(found: dict[str, Any]) -> list[tuple[str, str]]:
    from rlm.cli.doctor import adapters_line
    from rlm.wiring.registry import PROVIDERS

    used, source = found["used"], found["table"]
    calls = "" if used["sub_model"] == used["default"] else f"; for calls {used['sub_model']}"
    lines = [("* used now", f"{used['default']}, because {used['why']}{calls}")]
    if used["problem"]:
        lines.append(("problem", used["problem"]))
    lines += [("note", text) for text in found["advice"]]
    without = [
        f"{name} ({each.key_variables[0]})"
        for name, each in PROVIDERS.items()
        if each.default_model and not any(found["keys"][key] for key in each.key_variables)
    ]
    silent = [each["provider"] for each in found["servers"] if not each["answers"]]
    if without:
        lines.append(("no key for", ", ".join(without)))
    if silent:
        lines.append(("no server", ", ".join(silent)))
    if found["programs"]:
        names = ", ".join(found["programs"])
        lines.append(("programs", f"{names} can answer too: `rlm setup`, or -m 'command/…'"))
    lines.append(("adapters", adapters_line(found["adapters"])))
    lines += [
        ("plugin", each["problem"] or f"{each['name']}/…, from {each['distribution']}")
        for each in found["plugins"]
    ]
    lines.append(
        ("table", f"{source['name']} {source['version']}, {source['date']}; rlm models PATTERN")
    )
    return lines
