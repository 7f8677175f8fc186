"""What all cloud environments share: keys, errors, streams and clean-up.

A sandbox costs money while it exists. So it ends with its session, when it can't be used, and when
its creation is cancelled; and every sandbox has a time limit at the provider.
"""

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import logging
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, ClassVar

from rlm._util.distribution import install_command
from rlm.environments._cloud_streams import BytesPipe, Inbox, Outbox, outcome_of, until_failure
from rlm.environments.pipes import LinesPipe, Pipe
from rlm.environments.remote import RemoteEnvironment
from rlm.errors import ConfigError, RLMError, SessionDied

__all__ = ["Cloud"]

_log = logging.getLogger(__name__)

_END_SECONDS = 8.0
_GIVING_UP_SECONDS = 20.0
_MAX_WORDS_CHARS = 500
_LEFT_BEHIND = "it runs until its own time limit, or until you end it on the provider's website"


class Cloud(RemoteEnvironment):
    """A provider of sandboxes and its SDK, which is imported when the first sandbox is made.

    `package` is the module of the SDK, and `key_names` are the variables in which it looks for
    keys. `refusals` and `endings` name its errors for a rejected key and for a sandbox that is
    gone. A sandbox is whatever `make` returns.
    """

    package: ClassVar[str]
    key_names: ClassVar[tuple[str, ...]]
    key_help: ClassVar[str]
    refusals: ClassVar[frozenset[str]]
    endings: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, *, api_key: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.api_key = api_key

    @classmethod
    def problem(cls) -> str | None:
        """Return what is missing: the SDK or a key."""
        return cls._missing(has_key=cls.has_key())

    def obstacle(self) -> str | None:
        """Return what is missing; a key that was passed in is enough."""
        return self._missing(has_key=bool(self.api_key) or self.has_key())

    @classmethod
    def _missing(cls, *, has_key: bool) -> str | None:
        if importlib.util.find_spec(cls.package) is None:
            return f"environment={cls.name!r} needs an SDK: {install_command(cls.name)}"
        if not has_key:
            return f"environment={cls.name!r} needs a key: {cls.key_help}"
        return None

    @classmethod
    def has_key(cls) -> bool:
        """Return whether the SDK will find a key, valid or not."""
        return any(os.environ.get(name) for name in cls.key_names)

    @abstractmethod
    async def make(self, sdk: Any) -> Any:
        """Make a sandbox with a time limit at the provider."""

    @abstractmethod
    async def run(self, sdk: Any, sandbox: Any, command: Sequence[str]) -> Pipe:
        """Start the command in the sandbox."""

    @abstractmethod
    async def end(self, sandbox: Any) -> None:
        """End the sandbox; may be called again if it fails."""

    async def let_go(self, sandbox: Any) -> None:
        """Close the connections to the sandbox."""

    @abstractmethod
    def id_of(self, sandbox: Any) -> str:
        """Return the provider's id of the sandbox."""

    async def start(self, command: Sequence[str]) -> Pipe:
        """Make a sandbox and run the command in it; the sandbox is ended if that fails."""
        sdk = importlib.import_module(self.package)
        sandbox = await self._await_sandbox(self._make_in_our_words(sdk))
        try:
            with self.in_our_words(f"sandbox {self.id_of(sandbox)} could not run its worker"):
                return await self.run(sdk, sandbox, command)
        except BaseException:
            await asyncio.shield(self.surely_end(sandbox))
            raise

    async def _make_in_our_words(self, sdk: Any) -> Any:
        with self.in_our_words("no sandbox could be created"):
            try:
                return await self.make(sdk)
            except (TypeError, ValueError) as error:
                words = self.words_of(error)
                raise ConfigError(f"{self.name} does not accept these options: {words}") from None

    async def _await_sandbox(self, making: Coroutine[Any, Any, Any]) -> Any:
        """Wait for a sandbox; if cancelled in the meantime, end it."""
        task = asyncio.get_running_loop().create_task(making)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=_GIVING_UP_SECONDS)
            if task.done() and task.exception() is None:
                await self.surely_end(task.result())
            else:
                task.cancel()
            raise

    async def surely_end(self, sandbox: Any) -> None:
        """End a sandbox; if that fails twice, log which one may still cost money."""
        end = functools.partial(asyncio.wait_for, timeout=_END_SECONDS)
        try:
            error = await outcome_of(end(self.end(sandbox)))
            if error is not None and not self._is_of(error, self.endings):
                error = await outcome_of(end(self.end(sandbox)))
            if error is not None and not self._is_of(error, self.endings):
                what = (self.id_of(sandbox), self.name, self.words_of(error))
                _log.warning("sandbox %s of %s could not be ended (%s); %s", *what, _LEFT_BEHIND)
        finally:
            await outcome_of(end(self.let_go(sandbox)))

    def pipe(
        self,
        sandbox: Any,
        *,
        write: Callable[[bytes], Awaitable[None]],
        output: AsyncIterator[Any],
        how: Callable[[], Awaitable[str]],
    ) -> Pipe:
        """Return a pipe over the streams of an SDK; `output` is bytes or text, as `carries` says.

        `how` says how the program or its sandbox ended; the text follows the sandbox's name.
        """
        name = self.id_of(sandbox)

        async def write_in_our_words(data: bytes) -> None:
            with self.in_our_words(f"sandbox {name} does not accept input"):
                await write(data)

        async def output_in_our_words() -> AsyncIterator[Any]:
            with self.in_our_words(f"the output of sandbox {name} broke off"):
                async for piece in until_failure(output, outbox.failed):
                    yield piece

        async def how_in_our_words() -> str:
            with self.in_our_words(f"the state of sandbox {name} is unknown"):
                return f"{name} {await how()}"

        outbox = Outbox(write_in_our_words)
        ending: list[asyncio.Task[None]] = []

        async def end_all() -> None:
            await outbox.close()
            await self.surely_end(sandbox)
            if isinstance(output, Inbox):
                await output.close()

        async def end() -> None:
            if not ending:
                ending.append(asyncio.get_running_loop().create_task(end_all()))
            await asyncio.shield(ending[0])

        if self.carries == "bytes":
            return BytesPipe(outbox.send, output_in_our_words(), end, how_in_our_words)
        return LinesPipe(outbox.send_text, output_in_our_words(), end, how_in_our_words)

    # The SDK's errors.

    @contextlib.contextmanager
    def in_our_words(self, what: str) -> Generator[None]:
        """Turn any exception of the SDK, or of its libraries, into one of ours."""
        try:
            yield
        except RLMError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again, as one of ours
            words = self.words_of(error)
            if self._is_of(error, self.refusals):
                failure: RLMError = ConfigError(f"{self.name} refused: {words}. {self.key_help}")
            else:
                failure = SessionDied(f"{self.name}: {what}: {words}")
            raise failure from None  # The chain could contain requests with a key.

    def words_of(self, error: BaseException) -> str:
        """Return the message of an SDK's error, without keys and shortened."""
        text = " ".join(str(error).split())
        if " " not in text:  # A KeyError, for example: one word explains nothing.
            text = f"{type(error).__name__} {text}".rstrip()
        keys = {f"${name}": os.environ.get(name) for name in self.key_names}
        for name, key in {"api_key": self.api_key, **keys}.items():
            if key:
                text = text.replace(key, name)
        return text if len(text) <= _MAX_WORDS_CHARS else f"{text[:_MAX_WORDS_CHARS]}…"

    @staticmethod
    def _is_of(error: BaseException, names: frozenset[str]) -> bool:
        return any(each.__name__ in names for each in type(error).__mro__)
