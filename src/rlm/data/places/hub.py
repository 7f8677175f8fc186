"""Files of the Hugging Face Hub, all of one commit, and splits of its datasets.

`hf://datasets/owner/name@revision/path` names files. With `?split=test`, it means the Parquet files
that the Hub makes from every dataset.
"""

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from rlm.data.filesystem.matching import fits
from rlm.data.filesystem.opening import display_path
from rlm.data.places.addresses import Place
from rlm.data.places.problems import not_installed
from rlm.data.places.stores import Entry
from rlm.errors import ConfigError

__all__ = ["HubStore"]

PARQUET = "refs/convert/parquet"
BLOCK_BYTES = 1 << 20
MAX_NAMED = 10
_FOLDERS = {"dataset": "datasets/", "space": "spaces/", "model": ""}
_Found = TypeVar("_Found")


class HubStore:
    """Files of a repository. Implements `rlm.data.places.stores.Store`."""

    resumes = False

    def __init__(self, place: Place) -> None:
        self._place = place
        self._hub = _library(place)
        given = {
            name: place.options[name] for name in ("endpoint", "token") if name in place.options
        }
        self._api = self._hub.HfApi(**given)
        self._files = self._hub.HfFileSystem(skip_instance_cache=True, **given)
        self._commit = ""

    async def find(self) -> list[Entry]:
        """Return the files of the commit that a revision currently means."""
        return await _in_thread(self._find)

    async def find_again(self) -> list[Entry] | None:
        return None  # A commit does not change.

    async def blocks(self, entry: Entry, start: int) -> AsyncIterator[bytes]:
        """Yield the bytes of a file as one stream; the library retries a failure once."""
        file = await _in_thread(lambda: self._files.open(entry.key, "rb", block_size=0))
        try:
            while block := await _in_thread(lambda: file.read(BLOCK_BYTES)):
                yield block
        finally:
            await _in_thread(file.close)

    async def close(self) -> None: ...

    def _find(self) -> list[Entry]:
        root, wildcards = self._place.wildcards
        wanted = self._place.dataset
        revision = PARQUET if wanted else None
        path = self._files.resolve_path(f"hf://{root.rstrip('/')}", revision=revision)
        if not hasattr(path, "repo_id"):
            raise ConfigError("buckets of the Hub can't be read; name a dataset or a repository")
        kind, name = path.repo_type, path.repo_id
        if wanted and kind != "dataset":
            raise ConfigError("only datasets have splits: write hf://datasets/owner/name?split=…")
        # One commit, even if another is pushed meanwhile.
        info = self._api.repo_info(name, repo_type=kind, revision=path.revision)
        self._commit = info.sha
        below = path.path_in_repo
        listed = list(islice(self._listed(name, kind, below), self._place.limits.files + 1))
        if wanted:
            listed = _of_split(listed, wanted, display_path(name))
        head = f"{_FOLDERS[kind]}{name}@{self._commit}/"
        return [
            Entry(head + file.path, shown, file.size, file.blob_id)
            for file in listed
            for shown in (_below(file.path, below),)
            if not wildcards or fits(tuple(shown.split("/")), wildcards)
        ]

    def _listed(self, name: str, kind: str, below: str) -> Iterable[Any]:
        given = {"repo_type": kind, "revision": self._commit}
        try:
            found = self._api.list_repo_tree(name, below or None, recursive=True, **given)
            yield from (file for file in found if isinstance(file, self._hub.RepoFile))
        except self._hub.errors.EntryNotFoundError:
            named = self._api.get_paths_info(name, [below], **given)
            yield from (file for file in named if isinstance(file, self._hub.RepoFile))


def _library(place: Place) -> Any:
    """Import huggingface_hub, which would otherwise ask huggingface.co about this program."""
    name = "HF_HUB_DISABLE_TELEMETRY"
    was_set = name in os.environ
    os.environ.setdefault(name, "1")
    try:
        importlib.import_module("huggingface_hub.constants")  # reads the variable
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise not_installed(place, error) from error
    finally:
        if not was_set:
            del os.environ[name]


def _of_split(files: list[Any], wanted: dict[str, str], name: str) -> list[Any]:
    """Return the Parquet files of a split; they are in folders named config/split."""
    by_place: dict[tuple[str, str], list[Any]] = {}
    for file in files:
        config, _, rest = file.path.partition("/")
        split, _, number = rest.partition("/")
        if number.endswith(".parquet"):
            by_place.setdefault((config, split), []).append(file)
    configs = sorted({config for config, _ in by_place})
    config = wanted.get("config") or ("default" if "default" in configs else "")
    config = config or (configs[0] if len(configs) == 1 else "")
    if config not in configs:
        raise ConfigError(f"{name} has the configs {_list(configs)}; choose one with &config=")
    splits = sorted(split for found, split in by_place if found == config)
    if wanted.get("split") not in splits:
        raise ConfigError(f"{name} has the splits {_list(splits)}; choose one with ?split=")
    return by_place[config, wanted["split"]]


def _list(names: list[str]) -> str:
    shown = ", ".join(display_path(name)[:60] for name in names[:MAX_NAMED]) or "(none)"
    return shown + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")


def _below(path: str, folder: str) -> str:
    return path.removeprefix(f"{folder}/") if path != folder else path.rpartition("/")[2]


async def _in_thread(work: Callable[[], _Found]) -> _Found:
    return await asyncio.to_thread(work)
