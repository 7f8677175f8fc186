"""What the page may do with a run: stop it, continue it, delete it, and export it.

Every request that changes something needs the viewer's token and its own page; `Access` checks it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from itertools import islice
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rlm.errors import ConfigError
from rlm.records.journal import request_stop
from rlm.records.judging import Judgments
from rlm.records.trajectories import open_trajectory
from rlm.records.trajectories.exports import FORMATS, export
from rlm.viewer.forking import ONLY_HERE, Forks, run_file
from rlm.viewer.library import Threads, Unknown
from rlm.viewer.recipes import recipes_of
from rlm.viewer.routes import LibraryRoutes, LibraryView, part_of_path, run_id_of
from rlm.web.events import while_connected
from rlm.web.responses import json_response, without_paths

__all__ = ["ActionRoutes", "Actions", "file_name"]

PORTION = 200
ONLY_ROOTS = "only the root run of a tree can be changed"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class Reasons(Struct, frozen=True):
    """Why each action is not possible; None if it is."""

    stop: str | None
    resume: str | None
    delete: str | None


class Actions:
    """What can be done with the journaled runs of one viewer."""

    def __init__(self, forks: Forks, threads: Threads) -> None:
        self._forks = forks
        self._threads = threads

    def reasons(self, run_id: str) -> Reasons:
        """Return which actions are not possible with a run now, and why. This blocks."""
        archive = self._forks.archive
        if archive is None:
            why = ONLY_HERE.format("changed")
            return Reasons(why, why, why)
        try:
            run = run_file(archive, run_id)
        except Unknown:
            return Reasons(ONLY_ROOTS, ONLY_ROOTS, ONLY_ROOTS)
        try:
            is_running = archive.summary(run).status == "running"
        except ConfigError as error:  # A damaged journal can still be deleted.
            return Reasons(str(error), str(error), None)
        return Reasons(
            stop=None if is_running else "this run is not in progress",
            resume=self._forks.why_not_resume(run),
            delete="this run is in progress; stop it first" if is_running else None,
        )

    async def stop(self, run_id: str) -> None:
        """Ask a run in progress to end, whatever process it is in."""
        await self._threads.run(self._stop, run_id)

    def _stop(self, run_id: str) -> None:
        archive = self._forks.archive
        if archive is None:
            raise ConfigError(str(self.reasons(run_id).stop))
        request_stop(run_file(archive, run_id))

    async def resume(self, run_id: str) -> None:
        await self._forks.resume(run_id)

    async def delete(self, run_id: str) -> None:
        """Delete the journal of a run that is not in progress, and contexts that no run needs."""
        await self._threads.run(self._delete, run_id)

    def _delete(self, run_id: str) -> None:
        archive = self._forks.archive
        if archive is None:
            raise ConfigError(str(self.reasons(run_id).delete))
        archive.remove(run_file(archive, run_id))
        archive.collect()


class ActionRoutes(LibraryRoutes):
    """The routes of actions."""

    def __init__(
        self,
        view_of: Callable[[Request], LibraryView],
        actions: Actions,
        threads: Threads,
        closing: asyncio.Event,
        judgments: Judgments | None = None,
    ) -> None:
        super().__init__(view_of, threads, closing)
        self._actions = actions
        self._judgments = judgments

    def changing(self) -> list[Route]:
        """Return the routes that change something: for the viewer's own runs only."""
        run = "/api/runs/{run_id}"
        return [
            Route(f"{run}/{name}", self._doing(action), methods=["POST"])
            for name, action in (
                ("stop", self._actions.stop),
                ("resume", self._actions.resume),
                ("delete", self._actions.delete),
            )
        ]

    def below(self, prefix: str) -> list[Route]:
        run = f"{prefix}/runs/{{run_id}}"
        return [
            Route(f"{run}/actions", self._reasons),
            Route(f"{run}/export/{{format}}", self._export),
        ]

    def _doing(self, action: Callable[[str], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            async for chunk in request.stream():
                if chunk:
                    raise ConfigError("this request has no body; the address names the run")
            await while_connected(None, action(run_id_of(request)), self._closing)
            return json_response({})

        return endpoint

    async def _reasons(self, request: Request) -> Response:
        view, run_id = self._view_of(request), run_id_of(request)
        is_opened = "opened_id" in request.path_params
        return await self._answer(request, self._facts, view, run_id, is_opened)

    def _facts(self, view: LibraryView, run_id: str, is_opened: bool) -> dict[str, Any]:
        """Return what can be done with a run, and how to ask the same again."""
        started = view.answers.started(run_id)
        why = "this is a copy of a file, which is removed when it is closed"
        reasons = Reasons(why, why, why) if is_opened else self._actions.reasons(run_id)
        return {
            "stop": _shown(reasons.stop),
            "resume": _shown(reasons.resume),
            "delete": _shown(reasons.delete),
            "formats": {name: each.description for name, each in FORMATS.items()},
            **recipes_of(started),
        }

    async def _export(self, request: Request) -> Response:
        """Send a run and its child runs as a file, piece by piece."""
        name, run_id = part_of_path(request, "format"), run_id_of(request)
        if name not in FORMATS:
            raise Unknown(f"unknown format {name[:40]!r}; formats: {', '.join(FORMATS)}")
        judgments = None if "opened_id" in request.path_params else self._judgments
        pieces = await self._threads.run(_exported, self._view_of(request), run_id, name, judgments)
        file = file_name(run_id, FORMATS[name].ending)
        # As bytes and as an attachment: no browser shows it at the viewer's own address.
        return StreamingResponse(
            self._sent(pieces),
            media_type="application/octet-stream",
            headers={"Content-Disposition": f"attachment; filename={file}"},
        )

    async def _sent(self, pieces: Iterator[str]) -> AsyncGenerator[bytes, None]:
        async with aclosing(_portions(pieces, self._threads)) as portions:
            async for portion in portions:
                if self._closing.is_set():
                    return
                yield portion


async def _portions(pieces: Iterator[str], threads: Threads) -> AsyncGenerator[bytes, None]:
    while portion := await threads.run(_joined, pieces):
        yield portion


def _joined(pieces: Iterator[str]) -> bytes:
    return "".join(islice(pieces, PORTION)).encode("utf-8", "replace")


def _exported(
    view: LibraryView, run_id: str, name: str, judgments: Judgments | None
) -> Iterator[str]:
    file = view.library.find(run_id)
    trajectory = open_trajectory(file.path, hides_settings=file.hides_settings)
    if judgments is not None:
        with suppress(ConfigError):  # The list reports it; export the run without its comments.
            trajectory.judgments = judgments.all()
    return export(trajectory, name, run_id=run_id)


def file_name(run_id: str, ending: str) -> str:
    """Return a file name for a run, of harmless characters only."""
    name = _UNSAFE.sub("-", run_id).strip("-")[:80] or "run"
    return f"rlm-{name}{ending}"


def _shown(reason: str | None) -> str | None:
    return None if reason is None else without_paths(reason)[:1_000]
