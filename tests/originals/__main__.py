"""`python -m tests.originals [DIR]`: what `make test-originals` runs."""

import sys
from pathlib import Path

from tests.originals import foreign, side_by_side


def main() -> None:
    if len(sys.argv) > 1:
        _run_foreign(Path(sys.argv[1]))
    elif side_by_side.REFERENCE.exists():
        side_by_side.main()
    else:
        sys.exit("test-originals: make build/venv-bench-rlms first, or name a checkout: DIR=…")


def _run_foreign(folder: Path) -> None:
    results = []
    if (tests := folder / "tests").is_dir():
        results += foreign.run_tests(tests)
    if (examples := folder / "examples").is_dir():
        results += foreign.run_examples(examples)
    if not results:
        sys.exit(f"test-originals: {folder} has neither tests/ nor examples/")
    for each in results:
        if each.outcome not in {"passed", "skipped"}:
            print(f"{each.outcome}: {each.file} {each.name}")
    print(foreign.table(results))


if __name__ == "__main__":
    main()
