"""The plugin installed from wheels in a fresh environment, by the README's one command."""

from pathlib import Path

from fresh_install import build_wheel, check_page, install, run

NAME = "recursivelm-harbor"
EXTRA_REQUESTS = 0
"""Every request is the engine's own; `test_agent` counts them."""


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(tmp_path: Path) -> None:
    wheel = build_wheel(NAME, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in wheel.names} == {"recursivelm_harbor"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel.names)
    assert "Requires-Dist: recursivelm>=0.1" in wheel.metadata
    assert "Requires-Python: >=3.12" in wheel.metadata


def test_one_command_installs_it_and_harbor_knows_it(tmp_path: Path) -> None:
    fresh = install(NAME, tmp_path)
    schema = run(
        *(str(fresh.bin / "harbor"), "agent", "schema", "recursivelm_harbor:RlmAgent"),
        folder=tmp_path,
        HOME=str(tmp_path),
        HARBOR_TELEMETRY="0",
    )
    assert "command_seconds" in schema
    check_page(NAME, fresh, EXTRA_REQUESTS)
