"""Which files an allowed package takes: on small distributions made here, and on real ones."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.environments.local import LocalEnvironment, packages
from rlm.environments.local.packages import Packages, resolve
from rlm.errors import ConfigError
from tests.environments.conftest import FakeHost
from tests.worker.sandbox.test_sealed import run_child, sealed_child

Install = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    """Writes a distribution as pip would: its files, METADATA and RECORD."""

    def install_one(
        name: str,
        *files: str,
        requires: tuple[str, ...] = (),
        outside: tuple[str, ...] = (),
        metadata: dict[str, str] | None = None,
        record: bool = True,
    ) -> Path:
        info = f"{name.replace('-', '_')}-1.0.dist-info"
        texts = dict.fromkeys(files, "") | {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            + "".join(f"Requires-Dist: {each}\n" for each in requires),
            **{f"{info}/{key}": text for key, text in (metadata or {}).items()},
        }
        if record:
            listed = [*texts, *outside, f"{info}/RECORD"]
            texts[f"{info}/RECORD"] = "".join(f"{each},,10\n" for each in listed)
        for path, text in texts.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text, "utf-8")
        return site / info

    return install_one


def relative(found: Packages, site: Path) -> dict[str, Any]:
    def short(paths: tuple[str, ...]) -> set[str]:
        return {os.path.relpath(path, site) for path in paths}

    return {
        "readable": {path for path in short(found.readable) if not path.endswith(".dist-info")},
        "listable": short(found.listable),
        "search_path": short(found.search_path),
        "imports": list(found.imports),
        "roots": {name: os.path.relpath(path, site) for name, path in found.roots},
    }


def test_a_package_includes_only_its_own_folders(install: Install, site: Path) -> None:
    install(
        "Num-Lib",
        *("numlib/__init__.py", "numlib/core/x.py", "num_lib.libs/libblas.so.3", "_numlib.abi3.so"),
        outside=("../../bin/numlib", "../../share/man/numlib.1"),
    )
    install("other", "other/__init__.py")
    (site / "secret.py").write_text("", "utf-8")
    found = resolve(["num.lib"])
    assert relative(found, site) == {
        "readable": {"numlib", "num_lib.libs", "_numlib.abi3.so"},
        "listable": {"."},
        "search_path": {"."},
        "imports": ["numlib"],
        "roots": {"numlib": "numlib", "_numlib": "_numlib.abi3.so"},
    }
    assert str(site / "Num_Lib-1.0.dist-info") in found.readable


@pytest.mark.parametrize("name", ["Some_Thing", "some-thing", "SOME.thing", "thing"])
def test_a_package_is_found_by_either_of_its_names(name: str, install: Install, site: Path) -> None:
    install("Some-Thing", "thing/__init__.py")
    assert relative(resolve([name]), site)["roots"] == {"thing": "thing"}


def test_a_single_file_package_includes_its_bytecode(install: Install, site: Path) -> None:
    install("six", "six.py", "__pycache__/six.cpython-311.pyc")
    (site / "__pycache__" / "other.cpython-311.pyc").write_text("", "utf-8")
    found = relative(resolve(["six"]), site)
    assert found["readable"] == {"six.py", "__pycache__/six.cpython-311.pyc"}
    assert found["imports"] == ["six"]


def test_the_standard_library_needs_no_packages(site: Path) -> None:
    assert resolve(["json", "collections.abc", "zoneinfo"]) == Packages()
    assert resolve([]) == Packages()


def test_cyclic_requirements_are_followed_once(install: Install, site: Path) -> None:
    install("top", "top/__init__.py", requires=("Mid_dle>=1", "leaf", "nothing; extra == 'more'"))
    install("mid-dle", "middle/__init__.py", requires=("top", "leaf[fast] (>=1)"))
    install("leaf", "leaf.py", requires=("top @ https://example.com/x;y ; os_name != 'x'",))
    found = relative(resolve(["leaf", "top", "leaf"]), site)
    assert found["imports"] == ["leaf", "top", "middle"]
    assert found["readable"] == {"leaf.py", "top", "middle"}


def test_a_heavy_dependency_is_readable_but_not_preloaded(install: Install, site: Path) -> None:
    record = "big/__init__.py,,9000000\nbig-1.0.dist-info/METADATA,,1\n"
    install("big", "big/__init__.py", metadata={"RECORD": record}, record=False)
    install("small", "small/__init__.py", requires=("big",))
    found = relative(resolve(["small"]), site)
    assert (found["imports"], found["readable"]) == (["small"], {"small", "big"})
    assert relative(resolve(["big"]), site)["imports"] == ["big"]


MARKERS = {
    "python_version < '3'": False,
    "python_version >= '3.9'": True,
    "python_version == '3.*'": True,
    "python_version ~= '3.9'": True,
    "python_full_version != '3.9.0b1'": True,
    "'3.10' < python_version or python_version > '3.9'": True,
    "sys_platform == 'win32' and python_version > '3'": False,
    "(sys_platform == 'win32' or os_name != 'x') and implementation_name != 'x'": True,
    "platform_machine in 'x86_64 aarch64 arm64 AMD64'": True,
    "platform_system not  in 'Windows'": True,
    "extra == 'dev'": False,
    "extra == 'dev' or extra != 'dev'": True,
    "python_full_version >= '3.9.0rc1'": True,
    "implementation_version < '3.999rc1'": True,
}


def test_a_pre_release_is_before_its_release(
    install: Install, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = packages._describe_interpreter()
    described["markers"]["python_full_version"] = "3.14.0rc2"
    monkeypatch.setattr(packages, "_describe_interpreter", lambda: described)
    install(
        "top",
        "top.py",
        requires=("leaf; python_full_version < '3.14.0rc3'", "no; python_full_version >= '3.14.0'"),
    )
    install("leaf", "leaf.py")
    assert relative(resolve(["top"]), site)["readable"] == {"top.py", "leaf.py"}


@pytest.mark.parametrize("marker", MARKERS)
def test_markers_are_evaluated(marker: str, install: Install, site: Path) -> None:
    install("top", "top.py", requires=(f"leaf; {marker}",))
    install("leaf", "leaf.py")
    assert ("leaf.py" in relative(resolve(["top"]), site)["readable"]) == MARKERS[marker]


@pytest.mark.parametrize(
    "marker",
    ["python_version", "weather == 'x'", "os_name == 'x')", "('a' == 'a'", "'a' ~= 'b'", "?"],
)
def test_an_unreadable_marker_is_reported(marker: str, install: Install) -> None:
    install("top", "top.py", requires=(f"leaf; {marker}",))
    install("leaf", "leaf.py")
    with pytest.raises(ConfigError, match=r"of top is unreadable .*; install another version"):
        resolve(["top"])


def test_a_namespace_package_is_never_readable_as_a_whole(install: Install, site: Path) -> None:
    install("google-a", "google/a/__init__.py", "google/a/b.py", "google/cloud/x/__init__.py")
    install("google-b", "google/b/__init__.py", "google/single.py")
    assert relative(resolve(["google-a"]), site) == {
        "readable": {"google/a", "google/cloud/x"},
        "listable": {".", "google", "google/cloud"},
        "search_path": {"."},
        "imports": ["google.a", "google.cloud.x"],
        "roots": {"google.a": "google/a", "google.cloud.x": "google/cloud/x"},
    }
    assert relative(resolve(["google.b"]), site)["imports"] == ["google.b", "google.single"]
    with pytest.raises(ConfigError, match=r"several packages; .*: google-a, google-b"):
        resolve(["google"])


def test_a_missing_package_is_reported_with_its_install_command(install: Install) -> None:
    with pytest.raises(ConfigError, match=r"'absent' is not installed .*: pip install absent"):
        resolve(["absent"])
    install("top", "top.py", requires=("absent>=2",))
    with pytest.raises(ConfigError, match=r"top needs the package 'absent'.*pip install absent"):
        resolve(["top"])


@pytest.mark.parametrize(
    ("files", "metadata"),
    [
        (("edit/__init__.py",), {"direct_url.json": json.dumps({"dir_info": {"editable": True}})}),
        (("__editable__.edit-1.0.pth", "__editable___edit_finder.py"), {}),
        (("_edit.pth",), {}),
    ],
)
def test_editable_packages_are_refused(
    files: tuple[str, ...], metadata: dict[str, str], install: Install
) -> None:
    install("edit", *files, metadata=metadata)
    install("top", "top.py", requires=("edit",))
    with pytest.raises(ConfigError, match=r"edit is installed in editable mode.*pip install"):
        resolve(["edit"])
    with pytest.raises(ConfigError, match=r"editable mode.*\(needed by top\)"):
        resolve(["top"])


def test_a_project_folder_on_the_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "proj.egg-info").mkdir(parents=True)
    (project / "proj.egg-info" / "PKG-INFO").write_text("Name: proj\nVersion: 1\n", "utf-8")
    (project / "proj.egg-info" / "SOURCES.txt").write_text("proj.py\n", "utf-8")
    (project / "proj.py").write_text("", "utf-8")
    monkeypatch.setattr(sys, "path", [str(project)])
    with pytest.raises(ConfigError, match="editable mode"):
        resolve(["proj"])


def test_without_a_record_of_files_the_declared_names_are_used(
    install: Install, site: Path
) -> None:
    metadata = {"top_level.txt": "listed\nsingle\n"}
    install("deb", "listed/__init__.py", "single.py", metadata=metadata, record=False)
    found = relative(resolve(["deb"]), site)
    assert found["readable"] == {"listed", "single.py"}
    install("bare", "bare/__init__.py", record=False)
    assert relative(resolve(["bare"]), site)["imports"] == ["bare"]


def test_a_package_without_modules_is_reported(install: Install) -> None:
    install("stubs", "stubs-stubs/x.pyi")
    with pytest.raises(ConfigError, match="stubs has no module to import"):
        resolve(["stubs"])


@pytest.mark.parametrize("name", ["rlm", "recursivelm", "RecursiveLM", "plugin"])
def test_rlm_itself_cannot_be_offered_as_a_package(name: str, install: Install) -> None:
    install("recursivelm", "rlm/__init__.py")
    install("plugin", "plugin.py", requires=("recursivelm",))
    with pytest.raises(ConfigError, match="runs the sandbox"):
        resolve([name])


def test_a_package_that_contains_the_program_is_refused(
    install: Install, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("around", "around/__init__.py")
    (site / "around" / "work").mkdir()
    assert resolve(["around"]).imports == ("around",)
    monkeypatch.chdir(site / "around" / "work")
    with pytest.raises(
        ConfigError, match=r"would make .*around readable, and this program runs there"
    ):
        resolve(["around"])


def test_symbolic_links_are_resolved(
    install: Install, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("linked", "linked/__init__.py")
    store = tmp_path / "store"
    (site / "linked").rename(store)
    (site / "linked").symlink_to(store)
    (tmp_path / "lib64").symlink_to(tmp_path / "lib")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib64" / "site-packages")])
    found = resolve(["linked"])
    assert found.search_path == (str(site),)
    assert {str(site / "linked"), str(store)} <= set(found.readable)


# -- real ones ------------------------------------------------------------------------------------


def test_requirements_of_a_real_package_are_resolved() -> None:
    found = resolve(["aiohttp"])
    assert found.imports[0] == "aiohttp"
    assert {"multidict", "yarl", "frozenlist", "attr", "idna"} <= {name for name, _ in found.roots}
    assert "pytest" not in {name for name, _ in found.roots}
    sites = set(found.search_path)
    assert sites == set(found.listable)
    assert all(Path(path).exists() and path not in sites for path in found.readable)


USE_AIOHTTP = "import aiohttp.web, yarl\ntell([str(yarl.URL('a://b') / 'c'), preloading.failures])"


def test_a_real_package_runs_in_a_sealed_sandbox() -> None:
    found = resolve(["aiohttp", "msgspec"])
    told = sealed_child(
        USE_AIOHTTP, search_path=found.search_path, imports=found.imports, roots=found.roots
    )
    assert told == ["a://b/c", {}]


def test_another_path_to_this_interpreter_finds_the_same_packages() -> None:
    other = Path(sys.executable).with_name(f"python{sys.version_info[0]}")
    if not other.exists() or str(other) == sys.executable:
        pytest.skip("this interpreter has one name only")
    assert resolve(["msgspec"], python=str(other)) == resolve(["msgspec"])


def test_an_interpreter_that_does_not_run_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be listed"):
        resolve(["msgspec"], python=str(tmp_path / "python"))


def test_an_older_python_uses_our_list_of_standard_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.9 can't say what its standard library is."""
    text = json.dumps({**packages._describe_interpreter(), "standard": []})
    done = subprocess.CompletedProcess([], 0, stdout=text.encode())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert resolve(["json"], python="other") == Packages()


@pytest.fixture(scope="module")
def science_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fresh environment with numpy and others in it, from whatever index pip is set to."""
    folder = tmp_path_factory.mktemp("numpy") / "venv"
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    command = [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *INSTALLED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    if done.returncode:
        pytest.skip(f"numpy can't be installed: {done.stderr.strip().splitlines()[-1]}")
    return python


INSTALLED = ("numpy", "pandas", "pyarrow", "scipy", "matplotlib", "polars")

USES = {
    "pandas": "import pandas as pd\nprint(pd.DataFrame({'a': [1, 2]}).groupby('a').a.sum().sum())",
    "pyarrow": "import pyarrow\nprint(sum(pyarrow.array([1, 2]).to_pylist()))",
    "scipy": "from scipy import stats, optimize\nprint(round(float(stats.norm.cdf(0) * 6)))",
    "matplotlib": (
        "import io, matplotlib.pyplot as plt\nplt.plot([1, 2])\nfile = io.BytesIO()\n"
        "plt.savefig(file, format='svg')\nprint(3 if b'<svg' in file.getvalue() else 0)"
    ),
    "polars": "import polars as pl\nprint(pl.LazyFrame({'a': [1, 2]}).sum().collect().item())",
}
"""Each prints 3. On import matplotlib writes files, pyarrow and polars start threads, and pandas
and scipy try to import what is there but not allowed.
"""

SETTINGS: tuple[tuple[str, ...], ...] = ((), ("namespaces",), ("namespaces", "landlock"))
CASES = [(name, without) for name in USES for without in SETTINGS]
CASES.remove(("matplotlib", SETTINGS[-1]))  # Its fonts are files, and a sealed sandbox has none.


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "without"), CASES)
async def test_popular_packages_work(
    science_python: str, name: str, without: tuple[str, ...]
) -> None:
    environment = LocalEnvironment(packages=[name], without=without, python=science_python)
    try:
        session = await environment.open(FakeHost(), {})
        result = await session.execute(USES[name], timeout_seconds=60)
        assert (result.stdout, result.error) == ("3\n", None)
        assert (await environment.describe())["not_loaded"] == {}
    finally:
        await environment.close()


USE_NUMPY = """
import numpy as np
import numpy.fft, numpy.random, numpy.linalg, numpy.polynomial, numpy.ma
square = np.arange(16.0).reshape(4, 4) @ np.eye(4)
tell([square.sum(), len(np.random.default_rng(1).random(3)), preloading.imported[-1],
      preloading.failures, preloading.threads_started_by, preload.thread_count()])
"""


@pytest.mark.heavy
@pytest.mark.parametrize("sealed", [True, False])
def test_numpy(science_python: str, sealed: bool) -> None:
    found = resolve(["numpy"], python=science_python)
    assert found.imports == ("numpy",)
    settings = {"search_path": found.search_path, "imports": found.imports, "roots": found.roots}
    if sealed:
        told = sealed_child(USE_NUMPY, science_python, **settings)
    else:
        preloaded = "sys.path[:0] = settings['search_path']\n"
        preloaded += "preloading = preload.Preloading(settings['imports'])\npreloading.run()\n"
        told = run_child(preloaded + USE_NUMPY, science_python, **settings)
    assert told == [120.0, 3, "numpy", {}, {}, 1]
