"""What a question is about, without understanding it: keys that must match, words that should.

Runs on the host and makes the plan that `offline_search` follows inside the sandbox. A key is, in
this order of trust: something quoted or shaped like an identifier, a name of several capitalised
words, a single capitalised word or number, or what grammar marks as what is asked about.
"""

import re
from itertools import dropwhile, pairwise, takewhile

from rlm.clients.offline_plan import HEADS, Key, Plan
from rlm.clients.offline_text import stem

__all__ = ["only_extracts", "plan_for"]

SHORTEST_NUMBER_DIGITS = 4

STOP = {
    *("a", "about", "according", "after", "all", "also", "an", "and", "any", "are", "as", "at"),
    *("be", "been", "before", "being", "but", "by", "can", "could", "did", "do", "does", "each"),
    *("for", "from", "get", "got", "had", "has", "have", "he", "her", "his", "how", "i", "if"),
    *("in", "into", "is", "it", "its", "just", "may", "me", "might", "must", "my", "of", "off"),
    *("on", "one", "only", "or", "our", "out", "over", "please", "shall", "she", "should", "so"),
    *("some", "such", "than", "that", "the", "their", "them", "then", "there", "these", "they"),
    *("this", "those", "to", "under", "up", "us", "was", "we", "were", "what", "what's", "when"),
    *("where", "which", "who", "who's", "whom", "whose", "why", "will", "with", "within"),
    *("would", "you", "your"),
}
ASKING = {
    *("answer", "context", "describe", "document", "exact", "exactly", "explain", "extract"),
    *("file", "find", "give", "know", "list", "locate", "log", "look", "mention", "mentioned"),
    *("name", "output", "passage", "print", "provide", "question", "quote", "read", "recall"),
    *("reply", "report", "respond", "retrieve", "return", "say", "said", "search", "show"),
    *("state", "stated", "tell", "text", "value", "write"),
}
"""Words that speak of the asking, not of what is asked."""

RELATED = (
    {
        *("code", "identifier", "id", "key", "number", "pin", "passcode", "password", "passphrase"),
        *("token", "credential", "secret", "serial", "value", "access", "magic", "combination"),
        *("registration", "reference", "designation", "label", "assign", "unlock", "register"),
    },
    {"owner", "own", "belong", "holder", "responsible", "manager", "lead", "led", "head"},
    {"location", "locate", "located", "place", "stored", "kept", "address", "city", "site"},
    {"date", "day", "time", "year", "month", "scheduled", "deadline", "due", "launch", "start"},
    {"price", "cost", "amount", "fee", "total", "paid", "pay", "worth", "budget"},
)
"""Words that stand in for each other often enough to count for half."""

VALUE_WORDS = (
    RELATED[0]
    | RELATED[3]
    | RELATED[4]
    | {
        *("address", "age", "count", "extension", "height", "how", "many", "much", "phone", "port"),
        *("quantity", "rate", "score", "size", "temperature", "version", "weight", "when"),
    }
)
PREPOSITIONS = ("for", "of", "named", "called", "to", "about", "with", "by")
AUXILIARIES = {"are", "did", "does", "had", "has", "is", "was", "were", "will"}
AFFIXES = {
    *("all", "anti", "based", "character", "characters", "co", "day", "digit", "digits", "e"),
    *("ex", "in", "letter", "letters", "level", "long", "multi", "non", "of", "off", "old", "on"),
    *("out", "per", "pre", "post", "re", "related", "self", "semi", "specific", "sub", "to"),
    *("un", "up", "word", "year"),
}
"""Parts of ordinary hyphenated words, which are no identifiers: sign-in, four-digit."""

EXTRACT_ONLY = re.compile(
    r"\b(how many|how often|count|sum|total number|average|summar\w+|compare|list all)\b",
    re.IGNORECASE,
)
TITLE_CASE = re.compile(r"[^.?!:]\s(?:Is|The|For|Of|To|Was|Are|With|By|On|In)\b")
"""Where even small words are capitalised, capitals tell nothing."""

PARTICIPLE = re.compile(r"\w+ed|found|held|hidden|kept|known|made|sent|set|sold|written")
VERB_FORM = re.compile(r"\w+(?:[^us]s|ed)|held|kept|led|made|sold|won|wrote")
QUOTED = re.compile(r"[\"“”`]([^\"“”`\n]{2,80})[\"“”`]|(?<!\w)['‘]([^'’\n]{2,80})['’](?!\w)")
TOKEN = re.compile(r"[^\W_](?:[\w'’@./:#+&-]*[^\W_])?")
POSSESSIVE = re.compile(r"['’]s?$")
PIECE = re.compile(r"[^\W\d_]+|\d+")
SEPARATOR = r"(?:[ \t]*\n?[ \t]*|[-_.‐-―])"
FIRM_SEPARATOR = r"(?:[ \t]*\n[ \t]*|[ \t]+|[-_.‐-―])"
"""Between two digits there must be something, or 12-34 would be 1234."""

JOINING = re.compile(r"[\s_\-‐-―]+")


def only_extracts(question: str) -> bool:
    """Whether a question wants counting or summing up, which extraction can't do."""
    return EXTRACT_ONLY.search(question) is not None


def plan_for(question: str) -> Plan:
    """The search plan of a question."""
    question = " ".join(question.split())
    quoted = [q for pair in QUOTED.findall(question) if TOKEN.search(q := pair[0] or pair[1])]
    tokens = [POSSESSIVE.sub("", token) for token in TOKEN.findall(QUOTED.sub(" ", question))]
    tokens = [part for token in tokens for part in _split_slashes(token)]
    keys = _keys(question, quoted, tokens)
    return Plan(
        question=question,
        keys=keys,
        terms=_terms([*quoted, *tokens], keys),
        wants_value=bool({stem(t.lower()) for t in tokens} & {stem(w) for w in VALUE_WORDS}),
    )


def _split_slashes(token: str) -> list[str]:
    return token.split("/") if re.fullmatch(r"[a-z]+/[a-z]+", token) else [token]


def _keys(question: str, quoted: list[str], tokens: list[str]) -> list[Key]:
    """The most trusted kind of key that the question has; the other kinds stay plain words."""
    identifiers = [_key(text) for text in [*quoted, *filter(_is_identifier, tokens)]]
    if identifiers:
        return identifiers
    names = [] if TITLE_CASE.search(question) else _names(question)
    several = [_key(name) for name in names if len(name.split()) > 1]
    if several:
        return several
    single = [name for name in names if name.lower() not in HEADS]
    numbers = [t for t in tokens if t.isdigit() and len(t) >= SHORTEST_NUMBER_DIGITS]
    weak = [*single, *numbers] or _subject(question)
    return [_key(text, weak=True) for text in weak]


def _key(text: str, *, weak: bool = False) -> Key:
    """A key's pattern over lower-case text: its parts, however they are joined."""
    words = [word for word in JOINING.split(text) if word]
    head = words[0].lower() if len(words) > 1 and words[0].lower() in HEADS else ""
    core = words[1:] if head else words
    parts = [piece for word in core for piece in _pieces(word.lower())]
    pattern = re.escape(parts[0])
    for before, after in pairwise(parts):
        both_digits = before[-1].isdigit() and after[0].isdigit()
        pattern += (FIRM_SEPARATOR if both_digits else SEPARATOR) + re.escape(after)
    plain = all(word.isalpha() for word in core)
    return Key(
        pattern=pattern,
        form=" ".join(core) if " " in text else text,
        words=[word.lower() for word in core] if plain else [],
        head=head,
        weak=weak or (bool(head) and len(core) == 1 and plain),
    )


def _pieces(word: str) -> list[str]:
    """KX4821 is KX and 4821, so that KX-4821 is the same; a longer mix stays whole."""
    return PIECE.findall(word) if re.fullmatch(r"[^\W\d_]{1,5}\d{2,}", word) else [word]


def _is_identifier(token: str) -> bool:
    if any(char.isdigit() for char in token):
        measure = re.fullmatch(r"\d+[-.,]?\d*(st|nd|rd|th|-[a-z]+s?|%)?", token.lower())
        return not measure or bool(re.fullmatch(r"\d+(-\d+)+|\d+\.\d+\.\d+.*", token))
    if re.search(r"[a-z][A-Z]", token) or re.search(r"[@:#+&./]", token):
        return True
    parts = [part.lower() for part in re.split(r"[-_‐-―]", token)]
    if len(parts) < 2 or not AFFIXES.isdisjoint(parts):
        return False
    return not all(stem(p) in _ATTRIBUTE_STEMS or p in STOP for p in parts)


_ATTRIBUTE_STEMS = {stem(word) for word in [*VALUE_WORDS, "api", "user", "name", "mail", "sign"]}


def _names(question: str) -> list[str]:
    """Runs of capitalised words, without the words that only begin a sentence."""
    runs = re.findall(r"[A-Z][\w'’]*(?:\s+(?:of\s+(?:the\s+)?)?[A-Z][\w'’]*|\s+\d+\b)*", question)
    names = []
    for run in runs:
        words = [POSSESSIVE.sub("", word) for word in run.split()]
        while words and words[0].lower() in STOP | ASKING:
            words.pop(0)
        if words and not (len(words) == 1 and question.startswith(words[0])):
            names.append(" ".join(words))
    return names


def _subject(question: str) -> list[str]:
    """What grammar marks: an owner, what `for` introduces, a verb's subject or object."""
    words = TOKEN.findall(question)
    for rule in (_owner, _object, _subject_of_a_verb, _object_of_a_verb):
        if name := rule(words):
            return [" ".join(name)]
    return []


def _is_content(word: str) -> bool:
    return word.lower() not in STOP | ASKING


def _run(words: list[str]) -> list[str]:
    """The content words that a list begins with."""
    return list(takewhile(_is_content, words))


def _owner(words: list[str]) -> list[str]:
    """`silver dolphin` in: what is silver dolphin's code?"""
    for at, word in enumerate(words):
        if POSSESSIVE.search(word) and _is_content(base := POSSESSIVE.sub("", word)):
            return [*_run(words[:at][::-1])[::-1], base]
    return []


def _object(words: list[str]) -> list[str]:
    """What `for`, else `of` and the like, introduces last, unless that is the question word."""
    lower = [word.lower() for word in words]
    for preposition in PREPOSITIONS:
        if preposition in lower:
            rest = words[len(lower) - lower[::-1].index(preposition) :]
            asks = rest and rest[0].lower() in {"which", "what", "whom", "whose"}
            if name := _run(list(dropwhile(lambda word: word.lower() in STOP, rest))):
                verbal = len(name) > 2 and PARTICIPLE.fullmatch(name[-1])
                return [] if asks else name[:-1] if verbal else name
    return []


def _subject_of_a_verb(words: list[str]) -> list[str]:
    """`silver dolphin` in: by which name is silver dolphin known? silver dolphin was sold. Why?"""
    for at, word in enumerate(words):
        if word.lower() in AUXILIARIES:
            before, after = _run(words[:at]), _run(words[at + 1 :])
            if len(before) == at > 1:
                return before
            if len(after) > 2:
                return after[:-1]
    return []


def _object_of_a_verb(words: list[str]) -> list[str]:
    """`silver dolphin` in: which code unlocks the silver dolphin? Who founded silver dolphin?"""
    if not words or words[0].lower() not in {"which", "what", "who"}:
        return []
    first_verb = 1 if words[0].lower() == "who" else 2
    for at, word in enumerate(words[first_verb:], first_verb):
        if not _is_content(word):
            return []
        if VERB_FORM.fullmatch(word.lower()):
            return _run(list(dropwhile(lambda each: each.lower() in STOP, words[at + 1 :])))
    return []


def _terms(texts: list[str], keys: list[Key]) -> dict[str, list[str]]:
    """The question's other content words, each with the words that may stand for it."""
    taken = {piece for key in keys for piece in PIECE.findall(key["form"].lower())}
    taken |= {key["head"] for key in keys}
    words = {piece.lower() for text in texts for piece in re.findall(r"[^\W_]+", text)}
    terms = {}
    for word in sorted(words - taken - STOP - ASKING):
        if len(word) > 1 or word.isdigit():
            terms[stem(word)] = _related(word)
    return terms


def _related(word: str) -> list[str]:
    stems = [{stem(other) for other in group} for group in RELATED]
    return sorted(
        {other for group in stems if stem(word) in group for other in group} - {stem(word)}
    )
