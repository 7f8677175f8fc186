"""Text of PDF, Office, EPUB, Outlook and HTML documents.

`converter` is the host's side: limits, and what users are told. `formats` runs in a process of its
own and chooses one of the other modules, each of which reads one family of formats.
"""

from rlm.context.documents.converter import Converter, DocumentError

__all__ = ["Converter", "DocumentError"]
