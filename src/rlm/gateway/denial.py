"""Files that no client gets to see, whatever it asks: keys, passwords, the insides of tools.

Rules are about whole parts of a path, on every way to a file: list, open, read, search, runs.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["USUAL_DENIALS", "Denials"]

USUAL_DENIALS = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass"),
    *(
        ".git",
        ".hg",
        ".svn",
        ".ssh",
        ".aws",
        ".azure",
        ".gnupg",
        ".docker",
        ".kube",
        ".password-store",
    ),
    *(
        "*.pem",
        "*.key",
        "*.p12",
        "*.pfx",
        "*.jks",
        "*.keystore",
        "*.kdbx",
        "*.ppk",
        "*.asc",
        "*.gpg",
    ),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.tfstate", "*.tfstate.*", "*.tfvars"),
    *("credentials", "credentials.*", "secrets", "secrets.*", ".secrets", ".htpasswd", "shadow"),
    *("service-account*.json", "service_account*.json", "token.json", ".git-credentials"),
)
"""What is denied unless the operator says otherwise; matched without regard to case."""


class Denials:
    """Patterns with `*`, `?` and `[...]`, each about one part of a path."""

    def __init__(self, patterns: Iterable[str] = USUAL_DENIALS) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        joined = "|".join(fnmatch.translate(_folded(pattern)) for pattern in self.patterns)
        self._denied = re.compile(joined) if joined else None

    def forbid(self, parts: Sequence[str]) -> bool:
        """Whether one of these parts is denied; a folder denies all that is in it."""
        if self._denied is None:
            return False
        return any(self._denied.match(_folded(part)) for part in parts)


def _folded(text: str) -> str:
    """As a file system may see it: those of some machines take `.ENV` and `.env` for one file.

    Dots and blanks at the end are dropped there, too.
    """
    return unicodedata.normalize("NFKC", text).casefold().rstrip(". ") or text
