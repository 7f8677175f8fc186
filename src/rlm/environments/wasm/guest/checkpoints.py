"""A sandbox of WebAssembly can't be copied while it runs."""

from typing import TYPE_CHECKING, Any

from rlm.worker import wire

if TYPE_CHECKING:
    from rlm.environments.wasm.guest.channel import Channel

__all__ = ["Checkpoints"]


class Checkpoints:
    """Answers that there are none."""

    def __init__(self, channel: "Channel", *_: Any) -> None:
        self._channel = channel

    def take(self, frame: wire.Frame) -> bool:
        """Tell the host."""
        meta = {"error": "this sandbox has no checkpoints"}
        self._channel.send(wire.VALUE, frame.id, [wire.to_json(meta)])
        return False
