"""Text of PDF, Office, EPUB, Outlook and HTML documents.

`converter` is the host's side: limits, and messages for users. `formats` runs in a separate process
and chooses one of the other modules, each of which reads one family of formats.
"""

from rlm.context.documents.converter import Converter, DocumentError

__all__ = ["Converter", "DocumentError"]
