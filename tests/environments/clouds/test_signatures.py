"""Every call we make fits the real SDK, and the doubles have the signatures of the real one.

The list of calls is what a session on the double was seen to do. Each SDK has an environment of
its own (`make test-clouds`); those that are not installed here are left out.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rlm.errors import SessionDied
from rlm.testing.conformance.bench import Bench
from tests.environments.clouds.clouds import CLOUDS, NAMES, on_double
from tests.environments.clouds.machine import Machine, Model

INSTALLED = [name for name in NAMES if importlib.util.find_spec(CLOUDS[name].environment.package)]
if not INSTALLED:
    pytest.skip(
        "no SDK of a cloud is installed here; `make test-clouds` has them", allow_module_level=True
    )

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "modal": [
        {},
        {"cpu": (0.5, 2.0), "memory": (512, 2048), "region": "us", "cloud": "aws", "timeout": 60},
    ],
    "prime": [{}, {"network_access": True, "region": "eu", "team_id": "t1", "labels": ["a"]}],
    "e2b": [{}, {"template": "base", "network_access": True, "metadata": {"a": "b"}}],
    "daytona": [
        {},
        {"snapshot": "mine", "target": "eu"},
        {"image": "python:3.12", "cpu": 1, "memory": 2, "disk": 3},
    ],
}
CLASSES_IN_INIT = {"prime_sandboxes:AsyncSandboxProcess": ("stdout",)}
"""Attributes that the real class gets when it is made, not when it is defined."""


@pytest.fixture(params=INSTALLED)
async def seen(request: pytest.FixtureRequest) -> tuple[str, Machine]:
    """A cloud whose SDK is installed, and a machine that has seen everything we ever do."""
    name: str = request.param
    everything = Machine()
    for options in OPTIONS[name]:
        with on_double(name, **options) as (environment, machine):
            await everything_we_do(Bench(environment), machine)
            everything.calls += machine.calls
            everything.reads |= machine.reads
    if name == "daytona":
        with on_double(name) as (environment, machine):
            slow = CLOUDS[name].double.DaytonaTimeoutError("too slow")
            machine.faults["too slow"] = [slow]
            with pytest.raises(SessionDied):
                await Bench(environment).open()
            everything.calls += machine.calls
    return name, everything


async def everything_we_do(bench: Bench, machine: Machine) -> None:
    """Work, be ended by the provider, and end by itself."""
    async with bench.opened() as repl:
        await repl.lives()
    for ends_sandbox in (True, False):
        async with bench.opened() as repl:
            disk = next(iter(machine.sandboxes.values()))
            if ends_sandbox:
                await disk.end()
            else:
                await disk.programs[0].kill()
            with pytest.raises(SessionDied):
                await repl.run("1")


def real(path: str) -> Any:
    """What `module:Class.method` is in the SDK."""
    module, _, names = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Those that a caller gives, without what they are said to be."""
    found = list(inspect.signature(function).parameters.values())
    if found and found[0].name in {"self", "cls", "kind"}:
        found = found[1:]
    return {each.name: each.replace(annotation=inspect.Parameter.empty) for each in found}


async def test_every_call_fits_the_real_signature(seen: tuple[str, Machine]) -> None:
    name, machine = seen
    assert machine.count(CLOUDS[name].create) >= 3 * len(OPTIONS[name])
    for path, double, args, kwargs in machine.calls:
        if isinstance(double, type) and issubclass(double, Model):
            real(path)(**without_doubles(kwargs))  # Models check their fields themselves.
            continue
        signature = inspect.Signature(list(parameters_of(real(path)).values()))
        signature.bind(*args, **kwargs)


def without_doubles(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields whose values are models of the double, as models of the SDK."""
    return {
        key: real(value.sdk_path)(**value._fields) if isinstance(value, Model) else value
        for key, value in fields.items()
    }


async def test_the_double_has_the_real_signatures(seen: tuple[str, Machine]) -> None:
    for path, double, *_ in seen[1].calls:
        if isinstance(double, type):
            continue
        ours, theirs = parameters_of(double), parameters_of(real(path))
        assert list(ours) == list(theirs), path
        for name, parameter in ours.items():
            assert parameter.kind == theirs[name].kind, f"{path}: {name}"
            if not is_enum(theirs[name].default):
                assert parameter.default == theirs[name].default, f"{path}: {name}"
        if inspect.iscoroutinefunction(double):
            assert is_awaited(real(path)), f"{path} is not to be awaited"


def is_enum(value: object) -> bool:
    return hasattr(value, "name") and hasattr(value, "value")


def is_awaited(function: Any) -> bool:
    """Wrappers hide what they wrap; those of Modal are called `aio…`."""
    unwrapped = inspect.unwrap(getattr(function, "func", function))
    return inspect.iscoroutinefunction(unwrapped) or "aio" in getattr(unwrapped, "__name__", "")


async def test_every_attribute_we_read_exists_in_the_real_sdk(seen: tuple[str, Machine]) -> None:
    assert seen[1].reads
    for path, attribute in sorted(seen[1].reads):
        kind = real(path)
        known = {*dir(kind), *getattr(kind, "model_fields", ()), *CLASSES_IN_INIT.get(path, ())}
        assert attribute in known, f"{path} has no {attribute}"
        if attribute in CLASSES_IN_INIT.get(path, ()):
            assert f"self.{attribute} =" in inspect.getsource(kind.__init__)


async def test_every_error_we_handle_exists_in_the_real_sdk(seen: tuple[str, Machine]) -> None:
    name = seen[0]
    environment = CLOUDS[name].environment
    modules = {"modal": "modal.exception"}
    found = importlib.import_module(modules.get(name, environment.package))
    for error in environment.refusals | environment.endings:
        assert issubclass(getattr(found, error), Exception), error
    if name == "e2b":
        fields = real("e2b:CommandExitException").__dataclass_fields__
        assert "exit_code" in fields
    if name == "daytona":
        assert hasattr(real("daytona:DaytonaTimeoutError"), "sandbox_id")
