"""Citations: places in a context that support an answer, each checked against the context.

A model names a place by its offsets or by quoting it. It is not trusted: what the context does not
contain is dropped and counted, and the text of a citation is always taken from the context.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand
from rlm.citations.citation import CITE_LINE, Citation, footnotes, warning_of

if TYPE_CHECKING:
    from rlm.citations.collecting import Citations
    from rlm.citations.finding import Texts
    from rlm.citations.quotes import quotes_in

__all__ = ["CITE_LINE", "Citation", "Citations", "Texts", "footnotes", "quotes_in", "warning_of"]

__getattr__, __dir__ = on_demand(
    __name__, {"Citations": "collecting", "Texts": "finding", "quotes_in": "quotes"}
)
