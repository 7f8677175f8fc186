"""Both suites, by the real command, on machines that offer less and less, and on other Pythons."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlm.testing.attacks import ATTACKS
from rlm.testing.conformance import CHECKS
from rlm.worker.sandbox import landlock
from tests.environments.test_python_versions import find_python

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
CONFINE = str(Path(__file__).with_name("confine.py"))
ENVIRONMENT = {
    "PATH": os.defpath,
    "HOME": str(ROOT),
    "PYTHONPATH": str(ROOT / "src"),
    "PYTHONDONTWRITEBYTECODE": "1",
}
USER = 12345
MAX_SECONDS = 900

NEEDS_A_FOLDER = [
    "snippets: tempfile",
    "snippets: files, pathlib, glob and shutil",
    "snippets: sqlite3 in a file",
    "snippets: mmap and tarfile",
    "limits: a full disk is an OSError, and the session goes on",
]
"""Checks that are not offered where a session cannot have a folder of its own."""

LOOKS = [
    "files: see that a path exists (stat)",
    "files: see the size and time of a file (stat)",
    "files: see where a link points (readlink)",
    "files: see how full a disk of the host is (statfs)",
]
"""Landlock rules over opening, not over looking; nothing but this may be seen of the machine."""

LAYOUT = "other sessions: learn where things are in another session's memory"
"""Sessions of one zygote are copies of it; that is seen in every setting."""


class Setting(NamedTuple):
    """What is taken away, and whether from another user than root."""

    name: str
    without: tuple[str, ...] = ()
    as_user: bool = False

    @property
    def offers(self) -> set[str]:
        return {"namespaces", "landlock", "seccomp"} - set(self.without)

    @property
    def options(self) -> list[str]:
        user = ["--user", str(USER)] if self.as_user else []
        return [*user, *(f"--no-{each}" for each in self.without)]


DEFAULT = Setting("as who runs the tests")
SEALED = Setting("sealed", ("namespaces", "landlock"))
SETTINGS = [
    DEFAULT,
    Setting("as another user", as_user=True),
    Setting("no namespaces", ("namespaces",)),
    Setting("no namespaces, as another user", ("namespaces",), as_user=True),
    Setting("no Landlock", ("landlock",)),
    Setting("no Landlock, as another user", ("landlock",), as_user=True),
    SEALED,
    Setting("sealed, as another user", SEALED.without, as_user=True),
]
UNSAFE = [
    Setting("no seccomp", ("seccomp",)),
    Setting("no seccomp, as another user", ("seccomp",), as_user=True),
    Setting("nothing at all", ("namespaces", "landlock", "seccomp")),
]
# Python 3.10 looks for no signal in a loop whose body begins with `try`: such a cell is killed.
OTHER_PYTHONS = [
    version
    for version in ("3.9", "3.11", "3.12", "3.13")
    if version != f"{sys.version_info[0]}.{sys.version_info[1]}"
]


def reaches(path: Path) -> bool:
    """Whether every user may go to a folder."""
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


def unshares(flags: int, user: bool) -> bool:
    """Whether the machine lets a process have namespaces, asked without any code of rlm's."""
    become = f"os.setgid({USER}); os.setuid({USER})" if user else ""
    program = (
        f"import ctypes, os, sys\n{become}\n"
        f"sys.exit(ctypes.CDLL(None, use_errno=True).unshare({flags}) != 0)"
    )
    return subprocess.run([sys.executable, "-I", "-c", program], check=False).returncode == 0


def runs_as_root(setting: Setting) -> bool:
    return os.geteuid() == 0 and not setting.as_user


def skip_unless_possible(setting: Setting) -> None:
    new_mounts, new_user = 0x00020000, 0x10000000
    if setting.as_user and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if setting.as_user and not reaches(ROOT):
        pytest.skip("the checkout is in a folder that is closed to other users")
    if "landlock" in setting.offers and landlock.abi() < 1:
        pytest.skip("this kernel has no Landlock")
    if "namespaces" in setting.offers:
        as_root = runs_as_root(setting)
        flags = new_mounts if as_root else new_mounts | new_user
        # Becoming another user closes the way to an interpreter below a closed folder, but only
        # for programs that it would start; this one runs already.
        if not unshares(flags, user=setting.as_user):
            who = "root" if as_root else "a user without rights"
            pytest.skip(f"this machine lets {who} have no namespaces")


def run_check(setting: Setting, *more: str) -> "subprocess.CompletedProcess[str]":
    """The real command, in a child that is confined; nothing of our environment reaches it."""
    command = [sys.executable, "-m", "rlm", "env", "check", "local", "--attacks", "--json", *more]
    return subprocess.run(
        [sys.executable, CONFINE, *setting.options, "--", *command],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )


def expected_layers(setting: Setting) -> dict[str, Any]:
    offers, as_root = setting.offers, runs_as_root(setting)
    with_namespaces, with_landlock = "namespaces" in offers, "landlock" in offers
    sealed = not with_namespaces and not with_landlock
    parts = {"pivot_root": with_namespaces, "landlock": with_landlock, "sealed": sealed}
    # In place, another uid is of use only if it can still read the interpreter; a sealed session
    # has everything loaded already, and in namespaces the path is created again.
    readable = sealed or with_namespaces or reaches(Path(sys.base_prefix).resolve())
    return {
        "namespaces": ("root" if as_root else "user") if with_namespaces else "",
        "pid_namespace": with_namespaces,
        "file_system": [name for name, active in parts.items() if active],
        "landlock": with_landlock,
        "seccomp": True,
        "own_uid": as_root and readable,
        "sealed": sealed,
        "scratch": "/sandbox" if with_namespaces else "",
        "forks": True,
    }


def reported_layers(report: dict[str, Any]) -> dict[str, Any]:
    layers = {**report["layers"], "landlock": report["layers"]["landlock_abi"] > 0}
    return {name: layers[name] for name in expected_layers(DEFAULT)}


def rows(report: dict[str, Any], *verdicts: str) -> list[str]:
    return [
        f"{row['group']}: {row['name']}"
        for suite in ("conformance", "attacks")
        for row in report[suite]["rows"]
        if row["verdict"] in verdicts
    ]


def bad_rows(report: dict[str, Any]) -> str:
    return "\n".join(
        f"{row['verdict']} {row['group']}: {row['name']} ({row['detail']})"
        for suite in ("conformance", "attacks")
        for row in report[suite]["rows"]
        if row["verdict"] in ("SUCCEEDED", "failed")
    )


def assert_all_is_held(setting: Setting, done: "subprocess.CompletedProcess[str]") -> Any:
    """Nothing failed, nothing got through, no row was lost, and what is missing is what must be."""
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert not bad_rows(report), bad_rows(report)
    assert (done.returncode, report["ok"], report["problem"]) == (0, True, None), done.stderr
    assert len(report["conformance"]["rows"]) == len(CHECKS)
    assert len(report["attacks"]["rows"]) == len(ATTACKS)
    assert reported_layers(report) == expected_layers(setting), report["layers"]["missing"]
    namespaces, landlock_alone = "namespaces" in setting.offers, setting.offers >= {"landlock"}
    seen = LOOKS if landlock_alone and not namespaces else []
    assert rows(report, "visible") == [*seen, LAYOUT]
    assert rows(report, "not offered") == ([] if namespaces else NEEDS_A_FOLDER)
    assert set(report["conformance"]["counts"]) <= {"passed", "not offered"}
    assert set(report["attacks"]["counts"]) <= {"stopped", "visible", "not applicable"}
    return report


def named(settings: Sequence[Setting]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("setting", settings, ids=[each.name for each in settings])


@named(SETTINGS)
def test_local_passes_both_suites_in_each_setting(setting: Setting) -> None:
    skip_unless_possible(setting)
    assert_all_is_held(setting, run_check(setting))


@named(UNSAFE)
def test_without_seccomp_nothing_runs_and_the_error_says_what_to_do(setting: Setting) -> None:
    if setting.as_user:
        skip_unless_possible(setting._replace(without=("namespaces", "landlock")))
    done = run_check(setting)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: no sandbox for model-written code here: system calls can't be")
    assert "seccomp: Function not implemented" in line
    assert "choose another environment" in line
    assert line.endswith("allow_unsafe=True")


@named([DEFAULT, SEALED])
@pytest.mark.parametrize("version", OTHER_PYTHONS)
def test_local_passes_both_suites_on_other_pythons(version: str, setting: Setting) -> None:
    skip_unless_possible(setting)
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    report = assert_all_is_held(setting, run_check(setting, "--option", f"python={python}"))
    assert report["layers"]["python"].startswith(f"{version}.")
