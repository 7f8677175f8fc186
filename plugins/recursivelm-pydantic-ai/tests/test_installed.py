"""The plugin installed from wheels in a fresh environment, by the README's one command."""

from pathlib import Path

from fresh_install import build_wheel, check_page, install, run

NAME = "recursivelm-pydantic-ai"
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "ask_about_a_log.py"
EXTRA_REQUESTS = 2
"""Of the agent itself: one to call the tool, one to answer. `test_toolset` counts them."""


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(tmp_path: Path) -> None:
    wheel = build_wheel(NAME, tmp_path)
    tops = {name.split("/")[0].split("-")[0] for name in wheel.names}
    assert tops == {"recursivelm_pydantic_ai"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel.names)
    assert "pydantic-ai = recursivelm_pydantic_ai:PydanticAIClient" in wheel.entry_points
    assert "Requires-Dist: recursivelm>=0.1" in wheel.metadata


def test_one_command_installs_it_and_the_example_works(tmp_path: Path) -> None:
    fresh = install(NAME, tmp_path)
    said = run(str(fresh.bin / "python"), str(EXAMPLE), folder=tmp_path)
    assert said.startswith("Last night there was 1 error: ERROR disk sda1 is full.")
    options = ("-m", "pydantic-ai/test", "--strategy", "direct")
    said = run(str(fresh.bin / "rlm"), "ask", "Hello", *options, folder=tmp_path)
    assert "no tool calls" in said, "the words of Pydantic AI's TestModel"
    check_page(NAME, fresh, EXTRA_REQUESTS)
