"""`rlm acp`: an agent for editors, over the Agent Client Protocol."""

from recursivelm_acp.agent import EditorAgent
from recursivelm_acp.options import AgentOptions
from recursivelm_acp.transport import StdioTransport, serve

__all__ = ["AgentOptions", "EditorAgent", "StdioTransport", "serve"]
