"""Choose the model of a command, and find model servers on this machine."""

import http.client
import ipaddress
import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct, field

from rlm._util.finding import on_path
from rlm.errors import ConfigError
from rlm.settings.configuration import Defaults
from rlm.wiring import registry
from rlm.wiring.registry import OFFLINE_MODEL, PROVIDERS, split_model

__all__ = [
    "COMPATIBLE",
    "LOCAL",
    "PROGRAMS",
    "Server",
    "find_programs",
    "find_servers",
    "first_model",
    "host_of",
    "probe",
]

CONNECT_SECONDS = 0.3
ANSWER_SECONDS = 2.0
NAMED_ANSWER_SECONDS = 10.0
"""A closed port refuses at once; a server may need a moment, and longer on a busy machine.

What listens at the usual port of a server may be something else, but not at a named address.
"""

LARGEST_ANSWER_BYTES = 1_000_000
MAX_MODELS = 200
LONGEST_NAME = 200
LARGEST_WINDOW = 100_000_000
NOT_FOR_CHATS = ("embed", "rerank", "whisper", "bge-", "minilm", "clip", "tts", "ocr")


class Server(Struct, frozen=True):
    """A possible model server. `windows` contains the windows it reported.

    `address` is for people: it contains no password.
    """

    provider: str
    address: str
    answers: bool
    models: tuple[str, ...] = ()
    windows: dict[str, int] = field(default_factory=dict)


def _split(address: str) -> SplitResult:
    """Split an address; an invalid one has no parts."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return urlsplit("")
    return parts


def is_local(address: str) -> bool:
    """Return whether an address belongs to this machine."""
    host = _split(address).hostname or ""
    if host in {"localhost", "localhost.localdomain"}:
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


LOCAL = tuple(
    name
    for name, each in PROVIDERS.items()
    if each.base_url is not None and is_local(each.base_url)
)
"""Providers that are a server on this machine by default."""

COMPATIBLE = tuple(
    name for name, each in PROVIDERS.items() if each.base_url is None and not each.needs_key
)
"""Providers whose server is named by a variable, such as OPENAI_BASE_URL."""


def host_of(address: str) -> str:
    """Return the host and port of an address, without a password or a path that may be one."""
    return _split(address).netloc.rpartition("@")[2]


def shown_address(address: str) -> str:
    """Return an address for people: without a password if on this machine, else only its host."""
    parts, host = _split(address), host_of(address)
    if not host:
        return "an invalid address"
    return f"{parts.scheme}://{host}{parts.path if is_local(address) else ''}"


def address_of(provider: str, variables: Mapping[str, str], doubtful: Collection[str]) -> str:
    """Return a provider's address from variables; `doubtful` ones, from a `.env`, must be local."""
    known = PROVIDERS[provider]
    for variable in known.base_url_variables:
        if named := variables.get(variable):
            address = registry.as_base_url(provider, named)
            if variable not in doubtful or is_local(address):
                return address
    return known.base_url or ""


def find_servers(
    variables: Mapping[str, str],
    doubtful: Collection[str] = (),
    *,
    only: Collection[str] = (*COMPATIBLE, *LOCAL),
    seconds: float | None = None,
) -> list[Server]:
    """Ask all servers at once, with a short timeout; those without an address are left out."""
    addresses = {name: address_of(name, variables, doubtful) for name in only}
    addresses = {name: address for name, address in addresses.items() if address}
    found: dict[str, Server] = {}

    def ask(name: str) -> None:
        keys = PROVIDERS[name].key_variables
        key = next((variables[each] for each in keys if variables.get(each)), None)
        found[name] = probe(name, addresses[name], key, patience[name])

    patience = {
        name: seconds or _patience(address, PROVIDERS[name].base_url)
        for name, address in addresses.items()
    }
    threads = {name: threading.Thread(target=ask, args=(name,), daemon=True) for name in addresses}
    started = time.monotonic()
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, started + patience[name] - time.monotonic()))
    return [
        found.get(name, Server(name, shown_address(address), False))
        for name, address in addresses.items()
    ]


def _patience(address: str, usual: str | None) -> float:
    is_named = address != usual and is_local(address)
    return NAMED_ANSWER_SECONDS if is_named else ANSWER_SECONDS


def first_model(servers: Collection[Server]) -> tuple[Server, str] | None:
    """Return the first chat model of the first server that has one.

    Elsewhere, only if it is the server's only model: among several, a person has to choose.
    """
    for server in servers:
        names = [
            name
            for name in server.models
            if not any(word in name.lower() for word in NOT_FOR_CHATS)
        ]
        if len(names) == 1 or (names and is_local(server.address)):
            return server, names[0]
    return None


def probe(
    provider: str, address: str, key: str | None = None, seconds: float = ANSWER_SECONDS
) -> Server:
    """Ask a server for its models; it counts as silent if it is something else."""
    deadline = time.monotonic() + seconds
    listed = _get(address, "/models", key, deadline)
    rows = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(rows, list) or not all(_is_model(row) for row in rows[:MAX_MODELS]):
        return Server(provider, shown_address(address), False)
    rows = rows[:MAX_MODELS]
    windows = {row["id"]: row.get("max_model_len") for row in rows}
    ask = WINDOWS.get(provider)
    if ask is not None and rows:
        root = address.rstrip("/").removesuffix("/v1")
        windows |= ask(lambda path: _get(root, path, key, deadline), list(windows))
    sound = {name: size for name, size in windows.items() if _is_window(size)}
    return Server(provider, shown_address(address), True, tuple(row["id"] for row in rows), sound)


def _is_model(row: Any) -> bool:
    name = row.get("id") if isinstance(row, dict) else None
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME


def _is_window(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 < size <= LARGEST_WINDOW


# -- what windows they run with -------------------------------------------------------------------

Ask = Callable[[str], Any]


def _ollamas(ask: Ask, names: list[str]) -> dict[str, Any]:
    """Return the windows of models in memory; others get theirs when they are loaded."""
    return _column(ask("/api/ps"), "models", "name", "context_length")


def _lmstudios(ask: Ask, names: list[str]) -> dict[str, Any]:
    return _column(ask("/api/v0/models"), "data", "id", "loaded_context_length")


def _llamacpps(ask: Ask, names: list[str]) -> dict[str, Any]:
    """Return the window of the one model it serves, per slot."""
    facts = ask("/props")
    facts = facts.get("default_generation_settings") if isinstance(facts, dict) else None
    size = facts.get("n_ctx") if isinstance(facts, dict) else None
    return dict.fromkeys(names, size) if len(names) == 1 else {}


WINDOWS: dict[str, Callable[[Ask, list[str]], dict[str, Any]]] = {
    "llamacpp": _llamacpps,
    "lmstudio": _lmstudios,
    "ollama": _ollamas,
}
"""vLLM reports it in its list of models."""


def _column(answer: Any, rows: str, name: str, value: str) -> dict[str, Any]:
    listed = answer.get(rows) if isinstance(answer, dict) else None
    listed = listed if isinstance(listed, list) else []
    found = [row for row in listed if isinstance(row, dict) and isinstance(row.get(name), str)]
    return {row[name]: row.get(value) for row in found[:MAX_MODELS]}


# -- asking ---------------------------------------------------------------------------------------


def _get(address: str, path: str, key: str | None, deadline: float) -> Any:
    """Return the JSON at a path, or None if it does not arrive in time."""
    parts = _split(address)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    left = deadline - time.monotonic()
    if not parts.hostname or parts.scheme not in {"http", "https"} or left <= 0:
        return None
    headers = {"Accept": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    elif parts.password:
        named = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
        headers["Authorization"] = f"Basic {b64encode(named.encode()).decode()}"
    connection: http.client.HTTPConnection | None = None
    try:
        patience = min(CONNECT_SECONDS, left) if is_local(address) else left
        connection = kind(parts.hostname, parts.port, timeout=patience)
        connection.connect()
        connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
        connection.request("GET", f"{parts.path.rstrip('/')}{path}", headers=headers)
        response = connection.getresponse()
        data = response.read(LARGEST_ANSWER_BYTES) if response.status == 200 else b""
        return json.loads(data)
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    finally:
        if connection is not None:
            connection.close()


PROGRAMS = {
    "claude": "claude -p --output-format json --tools '' --strict-mcp-config",
    "codex": "codex exec --json --ephemeral --skip-git-repo-check --sandbox read-only -",
    "gemini": "gemini --output-format json",
    "llm": "llm",
}
"""Programs that answer on the command line, and how to ask them without tools of their own."""


def find_programs() -> dict[str, str]:
    """Return the known programs on PATH, each with the model's name that asks it."""
    return {name: f"command/{command}" for name, command in PROGRAMS.items() if on_path(name)}


OFFLINE_NOTICE = (
    "No model is configured (rlm setup finds one; or set a key such as OPENAI_API_KEY, or pass "
    f"-m): {OFFLINE_MODEL} finds passages. It is not a language model."
)


class Choice(NamedTuple):
    """The models of a run.

    `why` explains the choice; `fallback` means that none was configured; `server` is the local
    server that was found in that case. `by_project`: a project's file made the choice.
    """

    model: str
    sub_model: str | None
    why: str
    fallback: bool = False
    server: Server | None = None
    by_project: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.model,) if self.sub_model is None else (self.model, self.sub_model)

    @property
    def notice(self) -> str | None:
        """Return a notice if the model was not chosen by the user."""
        if self.fallback:
            return OFFLINE_NOTICE
        if self.server is not None:
            return f"No model is configured: using {self.model} at {self.server.address}."
        if self.by_project:
            return f"Using {' and '.join(self.names)}, because {self.why}."
        return None


def _nobody() -> Collection[Server]:
    return ()


def choose(
    model: str | None,
    sub_model: str | None,
    variables: Mapping[str, str],
    look: Callable[[], Collection[Server]] = _nobody,
    defaults: Defaults | None = None,
    doubtful: Collection[str] = (),
) -> Choice:
    """Return the requested models, else those of variables and files, else what `look` finds."""
    defaults = defaults or Defaults()
    found = defaults.choose(variables, model, sub_model, doubtful)
    if found is not None:
        return Choice(found.model, found.sub_model, found.why, by_project=found.by_project)
    if not sub_model and "RLM_SUB_MODEL" in doubtful:
        sub_model = variables.get("RLM_SUB_MODEL")  # An alias in it is not followed.
    else:
        sub_model = sub_model or variables.get("RLM_SUB_MODEL")
        sub_model = defaults.resolve(sub_model) if sub_model else defaults.sub_model()
    if here := first_model(look()):
        server, name = here
        why = f"no model is configured and {server.provider} answers at {server.address}"
        return Choice(f"{server.provider}/{name}", sub_model, why, server=server)
    return Choice(OFFLINE_MODEL, sub_model, "no model is configured", fallback=True)


def windows_of(
    choice: Choice, variables: Mapping[str, str], doubtful: Collection[str]
) -> dict[str, int]:
    """Return the windows that servers without a provider's table give to their models."""
    wanted = {name: _parts(name) for name in choice.names}
    own = (*COMPATIBLE, *LOCAL)
    providers = {provider for provider, _ in wanted.values() if provider in own}
    known = {choice.server.provider: choice.server} if choice.server is not None else {}
    if missing := providers - known.keys():
        servers = find_servers(variables, doubtful, only=missing)
        known |= {server.provider: server for server in servers}
    return {
        name: known[provider].windows[wire_name]
        for name, (provider, wire_name) in wanted.items()
        if provider in known and wire_name in known[provider].windows
    }


def _parts(model: str) -> tuple[str, str]:
    try:
        return split_model(model)
    except ConfigError:
        return "", model
