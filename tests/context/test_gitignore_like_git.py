"""Random trees with random .gitignore files: what git would list is what we read."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from rlm.data.filesystem.walking import Found, walk

NAMES = ["a", "b", "c.py", "d.txt", "src", "build", "e.log"]
LINES = """*.py|*.log|build|build/|/build|src/|/src/*|!src/a|!*.py|*|!*/|!/src|a|a/|!a/|**/b|src/**
!src/**/|!src/**/*.py|!src/**/c.py|**/|!**/|**|b/*|!b/c.py|# x|| |\\!x|d.tx?|[ab]|[!ab]|!b|src/build
/a/b/|!d.txt|*/a|a/**/c.py|b/**|!b/**/|!b/**/*.txt|build/ |src/*/a|/*|!/*/|?|a\\b|*.p*
/**|!/**|[[:alpha:]]|!|\\\\|[z-a]|[|a**|***""".replace("\n", "|").split("|")


def grow(folder: Path, chance: random.Random) -> None:
    folders = [folder]
    for _ in range(chance.randrange(2, 16)):
        path = chance.choice(folders) / chance.choice(NAMES)
        if not path.exists() and not path.suffix and chance.random() < 0.5:
            path.mkdir()
            folders.append(path)
        elif not path.exists():
            path.write_text("x", "utf-8")
    for each in chance.sample(folders, min(len(folders), chance.randrange(1, 4))):
        lines = "\n".join(chance.choices(LINES, k=chance.randrange(1, 6)))
        (each / ".gitignore").write_text(f"{lines}\n", "utf-8")


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(20))
def test_the_same_files_are_listed_as_by_git(tmp_path: Path, seed: int) -> None:
    for number in range(100):
        folder = tmp_path / str(number)
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        grow(folder, random.Random(seed * 1000 + number))
        command = ["git", "-C", str(folder), "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = sorted(each.name for each in walk(folder) if isinstance(each, Found))
        rules = {str(path): path.read_text("utf-8") for path in folder.rglob(".gitignore")}
        assert found == sorted(filter(None, listed.split("\0"))), rules
