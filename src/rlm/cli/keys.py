"""`rlm keys`: keys of providers, stored once. No key is ever shown."""

import json
import os
import sys
from pathlib import Path

import click

__all__ = ["keys", "read_key"]

EXAMPLES = """\b
Examples:
  rlm keys set openai
  pass show openai | rlm keys set OPENAI_API_KEY
  rlm keys list
  rlm keys remove openai

\b
A key is used where neither the environment nor a .env sets it.
"""

LONGEST_LINE = 20_000


@click.group(epilog=EXAMPLES, short_help="Store the keys of providers.")
def keys() -> None:
    """Store, list and remove keys of providers.

    They are kept in a file that only you can read, or in the system's keyring.
    """


@keys.command("set")
@click.argument("name", metavar="PROVIDER|VARIABLE")
@click.option(
    "--keyring/--file",
    "in_keyring",
    default=None,
    help="Where to keep it. Default: the system's keyring if it can be used, else the file.",
)
def set_key(name: str, in_keyring: bool | None) -> None:
    """Store a key, typed without echo or read from standard input."""
    from rlm.settings.keys import key_name

    variable = key_name(name)
    store_key(variable, read_key(variable), in_keyring)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the names as one JSON object.")
def list_keys(as_json: bool) -> None:
    """List the available keys and their sources, never their values."""
    from rlm.cli._errors import say
    from rlm.cli._output import show_table

    found, notice = _origins()
    if as_json:
        click.echo(json.dumps(found))
    elif found:
        show_table(
            ["key", "from"], [[name, ", ".join(found[name])] for name in found], name=0, right=2
        )
    else:
        say("No keys are set; `rlm keys set PROVIDER` stores one.")
    if notice:
        say(notice)


@keys.command()
@click.argument("name", metavar="PROVIDER|VARIABLE")
def remove(name: str) -> None:
    """Remove a stored key."""
    from rlm.cli._errors import say
    from rlm.settings.keys import KeyStore, key_name

    variable = key_name(name)
    KeyStore.usual(os.environ).remove(variable)
    say(f"{variable} is no longer stored.")


@keys.command()
def path() -> None:
    """Print the path of the file with your keys."""
    from rlm.settings.files import prepare_folder
    from rlm.settings.keys import KeyStore

    store = KeyStore.usual(os.environ)
    click.echo(str(store.path or prepare_folder(None)))


def read_key(variable: str) -> str:
    """Read a key: hidden from a terminal, else the first line of standard input."""
    if sys.stdin is None:
        raise click.UsageError("the key is read from standard input, but it is closed")
    if sys.stdin.isatty():
        return str(click.prompt(f"{variable} (not shown)", hide_input=True, err=True))
    data = sys.stdin.buffer.readline(LONGEST_LINE)
    return data.decode("utf-8", "replace").strip()


def store_key(variable: str, value: str, in_keyring: bool | None = None) -> None:
    """Store a key where it was asked for, else in the keyring if there is one; say where."""
    from rlm.cli._errors import say
    from rlm.cli._output import short_path
    from rlm.errors import ConfigError
    from rlm.settings.keys import KeyStore, keyring_problem

    problem = keyring_problem()
    if in_keyring and problem:
        raise ConfigError(f"{problem}; --file keeps the key in a file that only you can read")
    store = KeyStore.usual(os.environ)
    to_keyring = problem is None if in_keyring is None else in_keyring
    store.set(variable, value, in_keyring=to_keyring)
    if store.notice:
        say(store.notice)
    where = (
        "the system's keyring" if to_keyring else f"{short_path(store.path)}, readable only by you"
    )
    say(f"{variable} is stored in {where}.")
    if os.environ.get(variable):
        say(f"The environment also sets {variable}, and takes precedence.")


def _origins() -> tuple[dict[str, list[str]], str | None]:
    """Return the places of every available key; the first one is used."""
    from rlm.cli import dotenv
    from rlm.settings.keys import KEY_NAMES, KeyStore

    store = KeyStore.usual(os.environ)
    stored, taken = store.names(), dotenv.settings(os.environ, Path.cwd()).taken
    found: dict[str, list[str]] = {}
    for name in (*KEY_NAMES, *(each for each in stored if each not in KEY_NAMES)):
        places = ["environment"] if os.environ.get(name) else []
        places += [".env"] if name in taken else []
        places += [f"key store ({stored[name]})"] if name in stored else []
        if places:
            found[name] = places
    return found, store.notice
