"""The image of deploy/gateway: built, run as compose.yaml runs it, and used by a real client.

Nothing is fetched: the base is this machine's Python with the packages that are installed here.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.gateway.serving import answer, http_client, make_tree, refusal

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGE = os.environ["TEST_DOCKER_IMAGE"]
PYTHON = os.environ["TEST_DOCKER_PYTHON"]
TOKEN = "anne-0123456789abcdef"
HARDENED = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"),
    *("--user", "10001:10001", "--tmpfs", "/tmp:size=512m,mode=1777", "--pids-limit", "512"),
)
SECONDS = 120
NEEDED = ("mcp", "aiohttp", "click", "msgspec", "pathspec", "rich", "hatchling", "editables", "pip")


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def files_of(names: tuple[str, ...]) -> Iterator[tuple[Path, Path]]:
    """The files of packages and of all that they need: where each is, and its place below."""
    seen: set[str] = set()
    ahead = list(names)
    while ahead:
        wanted = re.match(r"([\w.-]+)\s*(?:\[([^\]]*)\])?", ahead.pop())
        assert wanted is not None
        name, chosen = wanted[1].lower(), filter(None, (wanted[2] or "").split(","))
        extras = [f"extra == {mark}{each.strip()}{mark}" for each in chosen for mark in "'\""]
        if f"{name}{extras}" in seen:
            continue
        seen.add(f"{name}{extras}")
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system
        ahead += [
            each
            for each in found.requires or ()
            if "extra ==" not in each or any(extra in each for extra in extras)
        ]
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield Path(str(file.locate())), Path(*file.parts)


def copy_programs(top: Path, *names: str) -> None:
    """Programs that a build needs, and the libraries that they need, at their places."""
    for name in names:
        program = shutil.which(name)
        assert program is not None
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for path in (f"/bin/{name}", *re.findall(r"(/\S+\.so\S*)", told)):
            place = top / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(program if path == f"/bin/{name}" else path, place)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    context = tmp_path_factory.mktemp("base")
    for source, place in files_of(NEEDED):
        if source.is_file():
            (context / "packages" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, context / "packages" / place)
    version = Path(PYTHON).name.removeprefix("python")
    library = Path(PYTHON).parents[1] / "lib" / f"python{version}" / "site-packages"
    copy_programs(context / "top", "sh", "mkdir", "chown")
    (context / "Dockerfile").write_text(
        f"FROM {IMAGE}\nCOPY packages {library}\nCOPY top /\n", "utf-8"
    )
    base, made = f"{IMAGE}-gateway-base", f"{IMAGE}-gateway"
    docker("build", "--quiet", "--tag", base, str(context))
    docker(
        *("build", "--quiet", "--network", "none", "--tag", made),
        *("--build-arg", f"BASE={base}", "--build-arg", f"PYTHON={PYTHON}"),
        *("--build-arg", "PIP_OPTIONS=--no-build-isolation --no-deps --no-index"),
        *("--file", str(REPOSITORY / "deploy/gateway/Dockerfile"), str(REPOSITORY)),
    )
    yield made
    docker("rmi", "--force", made, base)


@pytest.fixture(scope="module")
def container(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("host")
    root = make_tree(place)
    (place / "tokens").write_text(f"anne:{TOKEN}\n", "utf-8")
    for path in (place, root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    started = docker(
        *("run", "--detach", "--network", "host", "--init", *HARDENED),
        *("--volume", f"{root}:/source:ro"),
        *("--volume", f"{place / 'tokens'}:/run/secrets/gateway-tokens:ro"),
        *(image, "--show-names"),
    )
    try:
        until = time.monotonic() + SECONDS
        while "Gateway:" not in _logs(started):
            running = docker("inspect", "--format", "{{.State.Running}}", started) == "true"
            assert running, _logs(started)
            assert time.monotonic() < until, _logs(started)
            time.sleep(0.2)
        yield started
    finally:
        docker("rm", "--force", "--volumes", started)


def _logs(container: str) -> str:
    done = subprocess.run(["docker", "logs", container], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


async def test_a_client_can_use_the_image(container: str) -> None:
    url = "http://localhost:8420/mcp"
    async with http_client(url, TOKEN) as client:
        session = (await answer(client, "rlm_session_create"))["session"]
        listed = await answer(client, "rlm_list", session=session)
        assert [each["name"] for each in listed["files"]] == ["docs/notes.txt", "main.py"]
        found = await answer(client, "rlm_search", session=session, query="dolphin")
        assert found["hits"][0]["name"] == "main.py"
        assert await refusal(client, "rlm_open", session=session, path=".env")
    async with aiohttp.ClientSession() as http:
        async with http.get("http://localhost:8420/health") as got:
            assert got.status == 200
        async with http.post(url) as got:
            assert got.status == 401


async def test_code_of_clients_runs_in_its_sandbox(container: str) -> None:
    async with http_client("http://localhost:8420/mcp", TOKEN) as client:
        session = (await answer(client, "rlm_session_create"))["session"]
        opened = await answer(client, "rlm_open", session=session, path="main.py")
        done = await answer(
            client,
            "rlm_exec",
            session=session,
            handles=[opened["handle"]],
            code="print(len(files))\nprint(open('/source/main.py').read())",
        )
    assert done["output"].startswith("1\n")
    assert "dolphin" not in done["output"]
    assert done["error"]


def test_the_container_has_no_privileges_and_a_read_only_file_system(container: str) -> None:
    facts = docker("exec", container, "cat", "/proc/self/status")
    assert re.search(r"^Uid:\s+10001\s+10001", facts, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", facts, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", facts, re.MULTILINE)
    for place in ("/source/new", "/opt/rlm/new", "/new"):
        tried = ["docker", "exec", container, "sh", "-c", f": > {place}"]
        assert subprocess.run(tried, capture_output=True, check=False).returncode != 0


def test_the_health_check_passes_and_the_container_ends_on_request(container: str) -> None:
    check = docker("inspect", "--format", "{{json .Config.Healthcheck.Test}}", container)
    words = check.strip("[]").split('","')[1:]
    docker("exec", container, *(word.strip('"') for word in words))
    docker("stop", "--time", "20", container)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", container) == "0"
    docker("start", container)


def test_the_compose_file_has_the_settings_tested_here() -> None:
    text = (REPOSITORY / "deploy/gateway/compose.yaml").read_text("utf-8")
    for setting in (
        *("read_only: true", "cap_drop: [ALL]", '"no-new-privileges:true"', 'user: "10001:10001"'),
        *('"/tmp:size=512m,mode=1777"', "pids_limit: 512", ":/source:ro", "127.0.0.1:8420:8420"),
    ):
        assert setting in text
