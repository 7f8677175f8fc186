"""The reference engine's path to the removal of secrets from options."""

from rlm.compat.backends import without_keys as filter_sensitive_keys

__all__ = ["filter_sensitive_keys"]
