"""Reads Markdown: fenced blocks with the comment before them, commands, links, headings."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*)[^`]*$")
COMMENT = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")
LINK = re.compile(
    r"!?\[[^\]]*\]\(\s*<?(?P<target>[^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(?P<defined>\S+)",
    re.MULTILINE,
)
RUNNABLE = ("rlm ", "python ", "make ")


class Block(NamedTuple):
    """One fenced block. `line` is where its code starts; `comment` is what stands before it."""

    language: str
    code: str
    line: int
    comment: str

    @property
    def reason_not_run(self) -> str | None:
        head, _, reason = self.comment.partition(":")
        return reason.strip() if head == "not run" and reason.strip() else None


class Command(NamedTuple):
    """One shell command and the lines that it is said to print."""

    text: str
    expected: tuple[str, ...]


def blocks_of(text: str) -> list[Block]:
    """Every fenced block, in order. A blank line between comment and fence is fine."""
    blocks: list[Block] = []
    comment = ""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if (opening := FENCE.match(lines[at])) is None:
            said = COMMENT.match(lines[at])
            comment = said["text"] if said else comment if not lines[at].strip() else ""
            at += 1
            continue
        start = at + 1
        at = start
        while at < len(lines) and not _closes(lines[at], opening["fence"]):
            at += 1
        indent = len(opening["indent"])
        code = "\n".join(
            line[indent:] if line[:indent].isspace() else line for line in lines[start:at]
        )
        blocks.append(Block(opening["language"], code, start + 1, comment))
        comment = ""
        at += 1
    return blocks


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}


def expected_output(code: str) -> list[str]:
    """The texts of its `# prints: …` comments."""
    return re.findall(r"#\s*prints:\s*(.*?)\s*$", code, re.MULTILINE)


def missing_output(expected: list[str] | tuple[str, ...], printed: str) -> str | None:
    """The first expected line that is not printed, in order; `...` in it stands for anything."""
    lines = iter(printed.splitlines())
    for text in expected:
        pattern = ".*".join(re.escape(part) for part in text.strip().split("..."))
        if not any(re.fullmatch(pattern, line.strip()) for line in lines):
            return text
    return None


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block with the names of those before it; assert that it prints what it says."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.code, f"<block at line {block.line}>", "exec"), names)
    missing = missing_output(expected_output(block.code), printed.getvalue())
    assert missing is None, f"{missing!r} is not in {printed.getvalue()!r}"


def blocks_run_by(path: Path, target: str) -> list[Block]:
    """The blocks whose comment says that a target of the Makefile runs them."""
    return [each for each in blocks_of(path.read_text("utf-8")) if target in each.comment]


def commands_of(block: Block) -> list[Command]:
    """The commands of a shell block: after `$ ` in a console block, every line in a bash block."""
    found: list[Command] = []
    for line in block.code.replace("\\\n", " ").splitlines():
        if block.language != "console":
            text = line.partition(" #")[0].strip()
            found += [Command(text, ())] if text and not text.startswith("#") else []
        elif line.startswith("$ "):
            found.append(Command(line[2:].strip(), ()))
        elif found and line.strip():
            found[-1] = Command(found[-1].text, (*found[-1].expected, line))
    return found


def broken_links(path: Path, root: Path) -> list[str]:
    """Relative links whose file, or whose heading in that file, does not exist."""
    text = _without_code(path.read_text("utf-8"))
    found = []
    for hit in LINK.finditer(text):
        target = hit["target"] or hit["defined"]
        if not re.match(r"[a-z][a-z0-9+.-]*:", target) and not _exists(target, path, root):
            number = text.count("\n", 0, hit.start()) + 1
            found.append(f"{path.relative_to(root)}:{number}: nothing is at {target}")
    return found


def _exists(target: str, path: Path, root: Path) -> bool:
    name, _, heading = target.partition("#")
    place = path if not name else root / name[1:] if name[0] == "/" else path.parent / name
    if not place.exists():
        return False
    return not heading or place.suffix != ".md" or heading in headings(place.read_text("utf-8"))


def headings(text: str) -> set[str]:
    """The anchors that a forge makes of the headings."""
    titles = re.findall(r"^#+\s+(.*?)\s*#*$", _without_fences(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _without_code(text: str) -> str:
    return re.sub(r"(`+).+?\1", "", _without_fences(text))


def _without_fences(text: str) -> str:
    """The same number of lines, with fenced ones blank."""
    kept = text.splitlines()
    for block in blocks_of(text):
        first, last = block.line - 2, block.line + len(block.code.splitlines())
        kept[first:last] = [""] * len(kept[first:last])
    return "\n".join(kept)
