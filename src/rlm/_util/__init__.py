"""Helpers without knowledge of the product."""
