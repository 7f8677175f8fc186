"""Instructions for local models that do not keep to the REPL's protocol by themselves."""

from pathlib import Path

__all__ = ["LLAMA_SYSTEM_PROMPT", "TINYLLAMA_SYSTEM_PROMPT"]

LLAMA_SYSTEM_PROMPT = Path(__file__).with_name("llama.md").read_text("utf-8").rstrip()
TINYLLAMA_SYSTEM_PROMPT = Path(__file__).with_name("tinyllama.md").read_text("utf-8").rstrip()
