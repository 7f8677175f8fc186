"""Decides which layers this machine offers, and applies them in the zygote and its sessions.

zygote   prepare()         decides what is possible, enters namespaces
worker   enter_session()   own scratch folder, own uid or own user namespace
         harden()          limits, capabilities, Landlock, seccomp; then user code
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial

from . import (
    cgroups,
    interpreter,
    kernel,
    landlock,
    namespaces,
    privileges,
    probes,
    seccomp,
)

__all__ = ["Layers", "LayersMissing", "enter_session", "harden", "place_to_write", "prepare"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from .orders import Settings
    from .trials import Trials

_FIRST_OWN_UID = 0x70000000
_OWN_UIDS = 65536
_ROOM_FOR_SHARED_TASKS = 4096
"""How many tasks all sessions together may add if they count as the user's own."""


class LayersMissing(Exception):
    """A required layer is not available; the message says which, why, and what to do."""


class Layers:
    """The decisions of the zygote; every session is forked with a copy of them.

    They include two open files: `process_folder` (/proc as it was) and `ruleset`, each None if not
    needed. A worker leaves them open until `enter_session` and `harden`, which close them.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.seccomp = False
        self.namespaces = ""
        self.pid_namespace = False
        self.landlock_abi = 0
        self.sealed = False
        self.forks = False
        self.missing: list[str] = []

        self.first_uid: int | None = None
        """The uid of slot 0; None if sessions keep the zygote's uid."""
        self.number_of_uids = 1
        self.own_user_namespace = False
        self.max_tasks: int | None = None
        """The limit on processes and threads; None where a limit would not work."""
        self.program = b""

        self.asks_for_threads = False
        """Whether the zygote must count threads, because no limit of the kernel works."""

        self.zygote = os.getpid()
        """The process id of the zygote, as workers see it."""
        self.process_folder: int | None = None
        self.ruleset: int | None = None
        self.cgroups: cgroups.Cgroups | None = None

    def report(self) -> dict[str, Any]:
        """Return the facts for events and `rlm doctor`."""
        file_system = ["pivot_root"] if self.namespaces else []
        file_system += ["landlock"] if self.landlock_abi else []
        file_system += ["sealed"] if self.sealed else []
        return {
            "namespaces": self.namespaces,
            "pid_namespace": self.pid_namespace,
            "file_system": file_system,
            "landlock_abi": self.landlock_abi,
            "seccomp": self.seccomp,
            "own_uid": self.first_uid is not None and self.number_of_uids > 1,
            "sealed": self.sealed,
            "scratch": self.scratch,
            "forks": self.forks,
            "cgroup": self.cgroups is not None,
            "missing": list(self.missing),
        }

    @property
    def scratch(self) -> str:
        """The folder that sessions may write to, or ""."""
        if self.namespaces:
            return namespaces.SCRATCH
        return "" if self.sealed else self.settings.scratch

    def uid_of(self, slot: int) -> int | None:
        """Return the uid of the session in this slot; None if it keeps the zygote's uid."""
        if self.first_uid is None:
            return None
        if self.number_of_uids == 1:
            return self.first_uid
        return _FIRST_OWN_UID + (self.first_uid - _FIRST_OWN_UID + slot) % self.number_of_uids

    def zygote_lives(self) -> bool:
        """Return whether the zygote is alive; a worker must not continue without it."""
        return os.getppid() == self.zygote


# -- in the zygote ---------------------------------------------------------------------------------


def prepare(trials: Trials) -> Layers:
    """Decide from finished trials, enter namespaces, and prepare everything for sessions.

    Call it once, single-threaded and still dumpable, after imports: where namespaces are possible,
    the host's files, including /proc, are gone afterwards. If it raises LayersMissing, nothing has
    been changed.
    """
    settings, readable, hidden = trials.settings, trials.readable, trials.hidden
    layers = Layers(settings)
    _decide_seccomp(layers, trials)
    _decide_landlock(layers, trials)
    kind = _decide_namespaces(layers, trials)
    _decide_sealed(layers, kind)
    layers.process_folder = _open_process_folder()
    _decide_cgroups(layers)
    if kind:
        namespaces.move(
            kind, readable, hidden, settings.listable, keep_cgroups=layers.cgroups is not None
        )
        layers.namespaces = kind
    elif layers.landlock_abi:
        layers.ruleset = _ruleset_without_namespaces(settings, readable, hidden)
    _decide_identity(layers, readable)
    _decide_max_tasks(layers)
    _decide_permits(layers, trials)
    if layers.seccomp:
        layers.program = seccomp.build(
            kernel.MACHINE,
            forks=layers.forks,
            sealed=layers.sealed,
            scratch=bool(layers.scratch),
        )
    privileges.drop_bounding_set()  # Once here, to save forty calls in every session.
    return layers


def _decide_seccomp(layers: Layers, trials: Trials) -> None:
    problem = trials.seccomp_problem
    layers.seccomp = not problem
    if problem:
        layers.missing.append(f"seccomp: {problem}")
        _require(
            layers,
            f"system calls can't be filtered ({problem}). Let the container's profile allow "
            "seccomp and prctl, use Linux on x86_64 or aarch64",
        )


def _decide_landlock(layers: Layers, trials: Trials) -> None:
    problem = trials.landlock_problem
    layers.landlock_abi = 0 if problem else landlock.abi()
    if problem:
        layers.missing.append(f"landlock: {problem}")


def _decide_namespaces(layers: Layers, trials: Trials) -> str:
    no_pids = trials.pid_namespace_problem
    layers.pid_namespace = bool(trials.namespaces) and not no_pids
    layers.missing += trials.namespace_problems
    layers.missing += [f"pid namespace: {no_pids}"] if no_pids else []
    return trials.namespaces


def _decide_sealed(layers: Layers, kind: str) -> None:
    """Close every path with seccomp if no other file-system layer works."""
    if kind or layers.landlock_abi:
        return
    problem = layers.settings.forbidden("sealed") or ("" if layers.seccomp else "it needs seccomp")
    layers.sealed = not problem
    if problem:
        layers.missing.append(f"sealed: {problem}")
        reasons = "; ".join(layers.missing)
        _require(
            layers,
            f"files can't be hidden ({reasons}). Allow user namespaces or Landlock (Linux 5.13)",
        )


def _decide_cgroups(layers: Layers) -> None:
    """Use control groups if possible; they limit kernel memory, which nothing else does."""
    if problem := layers.settings.forbidden("cgroup"):
        layers.missing.append(f"cgroup: {problem}")
        return
    try:
        found = cgroups.find(layers.settings.cgroup)
        problem = probes.cgroup(found)
    except OSError as error:
        layers.missing.append(f"cgroup: {error}")
        return
    if problem:
        found.close()
        layers.missing.append(f"cgroup: {problem}")
    else:
        layers.cgroups = found


def _require(layers: Layers, problem: str) -> None:
    if not layers.settings.allow_unsafe:
        raise LayersMissing(
            f"no sandbox for model-written code here: {problem}, choose another environment, or "
            "accept that its code can do anything you can, with allow_unsafe=True"
        )


def _open_process_folder() -> int | None:
    try:
        return os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _ruleset_without_namespaces(settings: Settings, readable: list[str], hidden: list[str]) -> int:
    """Make the ruleset once for all: folders can't have exceptions, so it has hundreds of rules."""
    kept, listed = interpreter.without([*readable, *namespaces.DEVICES], hidden)
    writable = ["/dev/null", *([settings.scratch] if settings.scratch else [])]
    return landlock.ruleset(kept, writable, [*listed, *settings.listable])


def place_to_write(layers: Layers) -> AbstractContextManager[None]:
    """Give the zygote a folder to write to while it loads packages."""
    if layers.namespaces:
        return namespaces.scratch_for_a_while(layers.settings.scratch_bytes)
    return nullcontext()


def _decide_identity(layers: Layers, readable: list[str]) -> None:
    if problem := layers.settings.forbidden("uid"):
        layers.missing.append(f"own uid: {problem}")
    elif layers.namespaces == namespaces.USER:
        _decide_user_namespace(layers, readable)
    elif os.geteuid() == 0:
        _decide_uid(layers, readable)
    else:
        layers.missing.append("own uid: only root can assign one; sessions run as this user")


def _decide_user_namespace(layers: Layers, readable: list[str]) -> None:
    """Without root, give each session a user namespace, which counts its threads (Linux 5.14)."""

    def become() -> None:
        namespaces.enter_session(
            layers.settings.scratch_bytes, process_folder=layers.process_folder
        )

    facts, problem = probes.identity(become, readable)
    layers.own_user_namespace = facts.get("counted", False)
    if not layers.own_user_namespace:
        problem = problem or "the kernel counts processes of all namespaces together"
        layers.missing.append(f"user namespace for each session: {problem}")


def _decide_uid(layers: Layers, readable: list[str]) -> None:
    """Choose a uid for each session, or one for all, or root without capabilities."""
    start = _FIRST_OWN_UID + int.from_bytes(os.urandom(2), "little")  # Not shared with other users.
    for first, count in ((start, _OWN_UIDS), (namespaces.NOBODY, 1)):
        facts, problem = probes.identity(partial(privileges.become, first, first), readable)
        if facts and (facts["readable"] or layers.sealed):
            layers.first_uid, layers.number_of_uids = first, count
            return
        problem = problem or "the interpreter could no longer be read"
        layers.missing.append(f"uid {first}: {problem}")


def _decide_max_tasks(layers: Layers) -> None:
    """Leave room for the user's other tasks, if they count; root has no limit."""
    if layers.own_user_namespace or layers.number_of_uids > 1:
        layers.max_tasks = layers.settings.max_processes
        return
    uid = os.getuid() if layers.first_uid is None else layers.first_uid
    if uid != 0 and layers.process_folder is not None:
        now = probes.tasks_of(uid, layers.process_folder)
        layers.max_tasks = now + _ROOM_FOR_SHARED_TASKS


def _decide_permits(layers: Layers, trials: Trials) -> None:
    """Decide whether workers may fork for checkpoints, and whether to ask about threads."""
    counted = layers.own_user_namespace or layers.number_of_uids > 1
    asks = layers.seccomp and not trials.permits_problem
    layers.forks = asks and layers.settings.checkpoints
    sees_threads = not layers.namespaces and os.path.isdir(f"/proc/{os.getpid()}/task")
    layers.asks_for_threads = asks and not counted and sees_threads
    if asks:
        seccomp.build_listener(kernel.MACHINE, layers.asks_for_threads)  # Kept for the sessions.
    if not asks:
        layers.missing.append("permits: the kernel can't ask before a fork (needs Linux 5.5)")


# -- in a session ----------------------------------------------------------------------------------


def enter_session(layers: Layers, slot: int) -> None:
    """Give a worker that was just forked its own folder and identity.

    No other live session may have the same `slot`.
    """
    uid = layers.uid_of(slot)
    if layers.namespaces:
        folder = layers.process_folder if layers.own_user_namespace else None
        namespaces.enter_session(layers.settings.scratch_bytes, uid, folder)
    else:
        os.chdir(layers.scratch or "/")
    if uid is not None:
        privileges.become(uid, uid)
    privileges.die_with_parent(layers.zygote_lives)
    if layers.process_folder is not None:
        os.close(layers.process_folder)
        layers.process_folder = None


def harden(layers: Layers) -> None:
    """Apply the last layers in the worker, after which user code may run.

    Handlers of SIGINT, SIGTERM and SIGXCPU can't be changed afterwards. If this raises, user code
    must not run.
    """
    settings = layers.settings
    max_file_bytes = settings.max_file_bytes
    privileges.apply(
        max_file_bytes=settings.scratch_bytes if max_file_bytes is None else max_file_bytes,
        max_open_files=settings.max_open_files,
        max_processes=layers.max_tasks,
        cpu_seconds=settings.cpu_seconds,
    )
    privileges.drop_capabilities()
    privileges.make_undumpable()
    privileges.forbid_new_privileges()
    if layers.landlock_abi:
        _restrict_files(layers)
    privileges.be_nice()  # Late, so that the session starts fast; afterwards it is forbidden.
    if layers.seccomp:
        seccomp.install(seccomp.bind_to_process(layers.program, os.getpid()))


def _restrict_files(layers: Layers) -> None:
    if layers.ruleset is None:
        # The new root contains only what may be read. The scratch folder belongs to this
        # session, so these three rules can't be made earlier.
        landlock.restrict(["/"], [namespaces.SCRATCH, "/dev/null"])
    else:
        landlock.restrict_with(layers.ruleset)
        os.close(layers.ruleset)
        layers.ruleset = None
