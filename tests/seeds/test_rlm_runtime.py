"""002: rlm-runtime. Its example runs as written."""

from pathlib import Path

from tests.seeds.reading import code_of, text_of
from tests.seeds.running import run_python


def test_the_example_with_a_fake_adapter(tmp_path: Path) -> None:
    done = run_python(["-c", code_of("002/2")], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fake summary\n", "")
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_every_name_the_document_writes_is_there() -> None:
    import rlm_runtime
    from rlm_runtime import adapters

    said = text_of("002")
    for name in ("Context", "LLAMA_SYSTEM_PROMPT"):
        assert f"`{name}`" in said
        assert hasattr(rlm_runtime, name)
    for name in ("FakeAdapter", "GenericChatAdapter", "OpenAICompatAdapter"):
        assert f"`{name}`" in said
        assert hasattr(adapters, name)
