"""What a user sets once: the default model, aliases, limits and keys.

`schema.py` names every setting with its type. `configuration.py` reads `config.toml` of the user
and `rlm.toml` of a project, and chooses the model; `toml_text.py` changes a file without touching
anything else in it; `keys.py` stores keys. Importing this package reads nothing.
"""

__all__: list[str] = []
