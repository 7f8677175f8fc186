"""The plugin installed from wheels in a fresh environment, by the README's one command."""

from pathlib import Path

from fresh_install import build_wheel, check_page, install, run

NAME = "recursivelm-dspy"
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "ask_about_a_log.py"
EXTRA_REQUESTS = 0
"""A run of the engine is all there is. `test_module` counts the requests."""


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(tmp_path: Path) -> None:
    wheel = build_wheel(NAME, tmp_path)
    tops = {name.split("/")[0].split("-")[0] for name in wheel.names}
    assert tops == {"recursivelm_dspy"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel.names)
    assert "recursivelm_dspy/inside.py" in wheel.names
    assert "Requires-Dist: recursivelm>=0.1" in wheel.metadata


def test_one_command_installs_it_and_the_example_works(tmp_path: Path) -> None:
    fresh = install(NAME, tmp_path)
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    said = run(str(fresh.bin / "python"), str(EXAMPLE), folder=tmp_path, **offline)
    first, second, third = said.splitlines()
    assert first == "1 error: ERROR disk sda1 is full"
    assert second.startswith("3,400,024 characters of log, ")
    assert third == "dspy.RLM, in our sandbox: 200,001 lines"
    check_page(NAME, fresh, EXTRA_REQUESTS)
