"""Helpers that know nothing about the rest of the package, except for the worker's."""
