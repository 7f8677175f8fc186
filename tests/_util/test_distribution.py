"""The name on the index, and other distributions that install a package called `rlm`."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

import rlm
from rlm._util import distribution
from rlm.cli.doctor import to_do
from tests.shape.tree import ROOT, repository_files

OLD = "rlm-engine"
MAY_NAME_THE_OLD_ONE = {
    "CHANGELOG.md",
    "docs/reference/compatibility.md",
    "src/rlm/__init__.py",
    "src/rlm/_util/distribution.py",
    "tests/_util/test_distribution.py",
}


def test_the_old_distribution_name_is_not_used_elsewhere() -> None:
    spellings = (OLD.encode(), OLD.replace("-", "_").encode())
    naming = {
        path.relative_to(ROOT).as_posix()
        for path in repository_files()
        if any(each in path.read_bytes() for each in spellings)
    }
    assert naming <= MAY_NAME_THE_OLD_ONE


def test_commands_name_the_installed_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert distribution.install_command("mcp") == "pip install 'recursivelm[mcp]'"
    monkeypatch.setattr(distribution, "own_name", lambda: "a-fork")
    assert distribution.install_command("mcp") == "pip install 'a-fork[mcp]'"


@pytest.mark.parametrize(
    ("installer", "version", "command"),
    [
        ("uv", "1.0", "uv pip install --python '/an env' 'recursivelm[mcp]'"),
        ("pip", "1.0", "pip --python '/an env' install 'recursivelm[mcp]'"),
        ("", "unknown", f"pip --python '/an env' install '{ROOT}[mcp]'"),
    ],
)
def test_commands_work_where_the_environment_has_no_pip(
    installer: str, version: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in those of `uv tool install`, `uv sync` and `make demo`."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "prefix", "/an env")
    monkeypatch.setattr(distribution, "_installer", lambda: installer)
    monkeypatch.setattr(distribution, "own_version", lambda: version)
    assert distribution.install_command("mcp") == command


def _record(site: Path, name: str, *files: str) -> None:
    """Put a distribution into a site-packages folder as pip records it."""
    folder = site / f"{name.replace('-', '_')}-1.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    rows = [*files, f"{folder.name}/METADATA", f"{folder.name}/RECORD"]
    (folder / "RECORD").write_text("".join(f"{row},,\n" for row in rows))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages folder with our package, recorded under the name of a fork."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "rlm").symlink_to(Path(rlm.__file__).parent)
    _record(folder, "a-fork", "rlm/__init__.py", "rlm/_util/distribution.py")
    return folder


def _python(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(site)!r}); {code}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


SHOW = "from rlm._util.distribution import own_name, strangers; print(own_name(), strangers())"


def test_a_single_rlm_distribution_is_not_reported(site: Path) -> None:
    done = _python(site, SHOW)
    assert (done.stdout, done.stderr) == ("a-fork []\n", "")


@pytest.mark.parametrize("other", ["rlms", OLD])
def test_another_distribution_that_provides_rlm_is_noticed(site: Path, other: str) -> None:
    _record(site, other, "rlm/__init__.py", "rlm/core/__init__.py")
    done = _python(site, SHOW)
    assert done.stdout == f"a-fork ['{other}']\n"
    assert f"{other} is installed in the same place" in done.stderr
    assert f"uninstall {other} and recursivelm" in done.stderr


def test_the_doctor_explains_conflicting_distributions() -> None:
    found = {
        "distribution": "recursivelm",
        "other_distributions": ["rlms"],
        "environment": "local",
        "environments": {"local": {"problem": None}},
        "model": {"problem": None, "fallback": False},
        "extras": {},
    }
    (line,) = to_do(found)
    assert line.startswith("rlms also installed files into the package rlm")
    assert line.endswith("pip uninstall rlms recursivelm, then install recursivelm again")


def test_importing_does_not_load_metadata() -> None:
    code = "import sys, rlm; rlm.RLM; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.heavy
def test_a_wheel_beside_the_reference_is_noticed(tmp_path: Path) -> None:
    """Install our wheel and a package with the reference's name into one environment."""
    wheels = tmp_path / "wheels"
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(wheels))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    (wheel,) = wheels.glob("recursivelm-*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    _record(site, "rlms", "rlm/core/__init__.py")
    done = subprocess.run([python, "-c", SHOW], capture_output=True, text=True, check=True)
    assert done.stdout == "recursivelm ['rlms']\n"
    assert "rlms is installed in the same place" in done.stderr
