"""An agent for Harbor: `harbor run --agent recursivelm_harbor:RlmAgent`."""

from recursivelm_harbor.agent import RlmAgent, RlmOptions
from recursivelm_harbor.tools import ContainerTools

__all__ = ["ContainerTools", "RlmAgent", "RlmOptions"]
