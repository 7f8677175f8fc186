"""What a user sets once: the usual model, aliases, limits and keys.

`schema.py` names every setting with its type. `configuration.py` reads `config.toml` of the user
and `rlm.toml` of a project, and chooses the model; `toml_text.py` changes a file without touching
anything else in it; `keys.py` keeps keys. Nothing is read by an import.
"""

__all__: list[str] = []
