"""How each dialect writes an answer: whole, as a stream, and as an error."""

from rlm.testing.fake_server.dialects.anthropic import AnthropicWriter
from rlm.testing.fake_server.dialects.chat import ChatWriter
from rlm.testing.fake_server.dialects.converse import ConverseWriter
from rlm.testing.fake_server.dialects.event import Writer
from rlm.testing.fake_server.dialects.gemini import GeminiWriter
from rlm.testing.fake_server.dialects.responses import ResponsesWriter
from rlm.testing.fake_server.requests import DialectName

__all__ = ["WRITERS"]

WRITERS: dict[DialectName, Writer] = {
    "chat": ChatWriter(),
    "responses": ResponsesWriter(),
    "anthropic": AnthropicWriter(),
    "gemini": GeminiWriter(),
    "converse": ConverseWriter(),
}
