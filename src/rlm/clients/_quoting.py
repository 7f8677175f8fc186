"""Find the sentence of a text that answers a question, without understanding either.

A question has keys, which the sentence must contain: something quoted or shaped like an identifier,
else a name of several capitalised words, else a single name, a long number or the subject of the
question. Its other words decide between the sentences that contain its keys.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Question", "Quotation", "quote", "stem", "stems_of"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IGNORED = _words(
    "a about according after all also an and answer any are as at be been before being but by can "
    "context could describe did do does document each exact exactly explain extract file find for "
    "from get give had has have he her his how i if in into is it its just know list listed "
    "locate log look may me mention mentioned might much must my name named of off on one only or "
    "our out output over passage please print provide question quote read recall reply report "
    "respond retrieve return said say search shall she should show so some state stated such "
    "summarize tell text than that the their them then there these they this those to under up us "
    "value was we were what when where which who whom whose why will with within would write you "
    "your"
)
"""Words that say nothing about what is asked."""

KINDS = _words(
    "agent asset company department device division machine mission node operation order product "
    "program programme project protocol sensor server site station task team unit vault vessel"
)
"""Nouns that may be left out before a name: Project Blue Heron may be just Blue Heron."""

RELATED = (
    (
        "access assign code combination credential id identifier key label magic number passcode "
        "passphrase password pin reference register secret serial token unlock"
    ),
    "date day deadline due launch month scheduled start time year",
    "amount budget cost fee paid pay price total worth",
    "belong head holder lead led manager own owner responsible",
    "address city kept located location place stored",
)
"""Words that may stand for each other. In a sentence, such a word counts for half."""

MEASURES = "age count extension height many phone port rate score size value version weight"
AFFIXES = _words("api based digit level long mail non old post pre related self sign user word")
"""Parts of ordinary compounds such as four-digit, which identify nothing."""

ABBREVIATIONS = _words("approx co dr e.g etc fig i.e inc jr ltd mr mrs ms no nr prof sr st vol vs")
UNFINISHED = _words("a an and are as by for from in is of on the to was were with")
"""Words at the edge of a line whose sentence continues on the other side of the line break."""

TOKEN = re.compile(r"[^\W_](?:[\w@./:#+&-]*[^\W_])?")
QUOTED = re.compile(r"[\"“”`]([^\"“”`\n]{2,80})[\"“”`]|(?<!\w)['‘]([^'’\n]{2,80})['’](?!\w)")
POSSESSIVE = re.compile(r"['’]s?\b")
NAME = re.compile(r"[A-Z]\w*(?:\s+(?:of\s+(?:the\s+)?)?[A-Z]\w*|\s+\d+\b)*")
TITLE_CASE = re.compile(r"[^.?!:]\s(?:Is|The|For|Of|To|Was|Are|With|By|On|In)\b")
WORD = re.compile(r"[^\W_]+")
SEPARATOR = re.compile(r"[-_.\s]+")
LETTERS_AND_NUMBER = re.compile(r"\b([^\W\d_]{1,5})(\d{2,})\b")
SUBJECTS = tuple(
    re.compile(pattern + r"\s*[?.!]*$", re.IGNORECASE)
    for pattern in (
        r".*\bfor\s+(?!wh)(.+?)(?:\s\w+ed)?",  # what is the code for X?
        r".*\b(?:of|named|called|to|about|with|by)\s+(?!wh)(.+?)(?:\s\w+ed)?",
        r".*\b(?:is|was|are|were|does|did|has|will)\s+(.+\s.+)\s\w+",  # where is red X kept?
        r"(?:which|what)\s+\w+\s+\w+(?:[^us]s|ed)\s+(.+?)",  # which code unlocks X?
        r"who\s+\w+(?:[^us]s|ed)\s+(.+?)",  # who founded X?
    )
)
VALUE = re.compile(r"\w*\d\w*|\b[A-Z]{2,}[A-Z-]{2,}\b")
VALUE_NEXT = re.compile(r"[^\",;|\n]{0,60}?\d")
ASSIGNED = re.compile(r"\s*(?:->|=>|[:=→]|(?:is|was|are|means|equals)\b)")
ANSWER = re.compile(r"\s*(?:a|answer|reply)[ \t]*[:.)-]", re.IGNORECASE)
BREAK = re.compile(r"\n|[.!?][\"'”’)\]]*\s+(?=[^a-z\s])")
LONGEST_SENTENCE_CHARS = 400
NEIGHBOURS = 4


def stem(word: str) -> str:
    """Return a word without the most common endings."""
    word = word.lower()
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def stems_of(text: str) -> set[str]:
    """Return the stems of the words of a text."""
    return {stem(word) for word in WORD.findall(text)}


RELATED_STEMS = [stems_of(group) for group in RELATED]
VALUE_STEMS = set().union(*RELATED_STEMS[:3], stems_of(MEASURES))


class Key(NamedTuple):
    """A name that the answer must contain. A weak one needs more evidence."""

    text: str
    pattern: str
    kind: str
    weak: bool


class Quotation(NamedTuple):
    """A sentence, how well it fits, and whether it may be used as the answer."""

    text: str
    score: float
    sure: bool


class Question:
    """The keys of a question, and the stems of its other words."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        quoted = [q for pair in QUOTED.findall(self.text) if WORD.search(q := "".join(pair))]
        tokens = TOKEN.findall(POSSESSIVE.sub("", QUOTED.sub(" ", self.text)))
        self.keys = self._keys(quoted, tokens)
        keyed = {word for key in self.keys for word in WORD.findall(key.text.lower())}
        words = set(WORD.findall(" ".join([*quoted, *tokens]).lower()))
        words -= keyed | IGNORED | {key.kind for key in self.keys}
        self.stems = {stem(word) for word in words if len(word) > 1 or word.isdigit()}
        self.related = set().union(*(g for g in RELATED_STEMS if g & self.stems)) - self.stems
        asks_when = "when" in self.text.lower().split()
        self.wants_value = asks_when or bool(stems_of(" ".join(tokens)) & VALUE_STEMS)

    def _keys(self, quoted: list[str], tokens: list[str]) -> list[Key]:
        if identifiers := [*quoted, *filter(_is_identifier, tokens)]:
            return [_key(text) for text in identifiers]
        names = [] if TITLE_CASE.search(self.text) else list(_names(self.text))
        if several := [name for name in names if " " in name]:
            return [_key(name) for name in several]
        single = [name for name in names if name.lower() not in KINDS]
        numbers = [token for token in tokens if token.isdigit() and len(token) > 3]
        return [_key(text, weak=True) for text in [*single, *numbers] or _subject(self.text)]


def _key(text: str, *, weak: bool = False) -> Key:
    words = text.split()
    kind = words[0].lower() if len(words) > 1 and words[0].lower() in KINDS else ""
    name = " ".join(words[1:] if kind else words)
    spaced = LETTERS_AND_NUMBER.sub(r"\1 \2", name.lower())  # KX4821 is also KX-4821
    pieces = [piece for piece in SEPARATOR.split(spaced) if piece]
    if len(pieces) > 3:
        return Key(name, re.escape(name).replace(r"\-", "-"), kind, weak)
    pattern = re.escape(pieces[0])
    for before, after in pairwise(pieces):
        apart = before[-1].isdigit() and after[0].isdigit()  # otherwise 12-34 would match 1234
        pattern += (r"[-_.\s]" if apart else r"[-_.\s]?") + re.escape(after)
    return Key(name, pattern, kind, weak or (bool(kind) and name.isalpha()))


def _is_identifier(token: str) -> bool:
    low = token.lower()
    if any(char.isdigit() for char in token):
        return not re.fullmatch(r"\d+(?:[.,]\d+)?(?:st|nd|rd|th|%|-[a-z]+)?", low)
    if re.search(r"[a-z][A-Z]|[@:#+&.]|/.*/", token):
        return True
    parts = re.split(r"[-_]", low)
    ordinary = IGNORED | AFFIXES | VALUE_STEMS
    return len(parts) > 1 and all({part, stem(part)}.isdisjoint(ordinary) for part in parts)


def _names(question: str) -> Iterator[str]:
    """Yield runs of capitalised words, without the words that only begin a sentence."""
    for run in NAME.findall(POSSESSIVE.sub("", question)):
        words = run.split()
        while words and words[0].lower() in IGNORED:
            words.pop(0)
        if words and not (len(words) == 1 and question.startswith(words[0])):
            yield " ".join(words)


def _subject(question: str) -> list[str]:
    """Return the phrase that, by its grammar, is what the question is about."""
    owner = re.match(r"(.+?)['’]s\b", question)
    found = owner or next(filter(None, (each.match(question) for each in SUBJECTS)), None)
    words = [word.lower() for word in TOKEN.findall(found[1])] if found else []
    runs = [run.split() for run in " ".join("|" if w in IGNORED else w for w in words).split("|")]
    runs = [run for run in runs if run]
    return [" ".join(runs[-1 if owner else 0])] if runs else []


def quote(question: Question, text: str) -> Quotation | None:
    """Return the sentence of a text that fits a question best, or None."""
    sentences = list(_sentences(text))
    judge = _by_keys if question.keys else _by_words
    found = [judge(question, sentences, at) for at in range(len(sentences))]
    return max(filter(None, found), key=lambda each: (each.sure, each.score), default=None)


def _sentences(text: str) -> Iterator[str]:
    """Split a text into records, sentences and lines; wrapped lines are one sentence."""
    start = line = 0
    for match in BREAK.finditer(text):
        if _is_break(text, line, match):
            sentence = text[start : match.end()]
            yield from (
                sentence.splitlines() if len(sentence) > LONGEST_SENTENCE_CHARS else [sentence]
            )
            start = match.end()
        if "\n" in match[0]:
            line = match.end()
    yield text[start:]


def _is_break(text: str, line: int, match: re.Match[str]) -> bool:
    at, after = match.start(), match.end()
    last = (text[max(line, at - 16) : at].lower().split() or [""])[-1].strip("(\"'")
    if match[0] != "\n":
        record = (
            text.startswith(("{", "[", "<", '"'), line)
            or " | " in text[max(line, at - LONGEST_SENTENCE_CHARS) : at]
        )
        initial = len(last) == 1 and last.isalpha()
        return "\n" in match[0] or not (record or initial or last in ABBREVIATIONS)
    following = text[after : after + 16].partition(" ")[0]
    flows = following[:1].islower() and (last[-1:].islower() or last[-1:] == ",")
    unfinished = following[:1].isalnum() and (last in UNFINISHED or following in UNFINISHED)
    return not (flows or unfinished)


def _by_words(question: Question, sentences: list[str], at: int) -> Quotation | None:
    held = stems_of(sentences[at]) & question.stems
    if not held:
        return None
    sure = len(held) >= min(2, len(question.stems)) and len(held) * 2 >= len(question.stems)
    return Quotation(_one_line(sentences[at]), len(held), sure)


def _by_keys(question: Question, sentences: list[str], at: int) -> Quotation | None:
    sentence = sentences[at]
    around = " ".join(sentences[max(0, at - 1) : at + 2])
    here = [(key, span) for key in question.keys if (span := _find(question, key, sentence))]
    if not here or not all(_find(question, key, around) for key in question.keys):
        return None
    key, span = here[0]
    exact = " ".join(span[0].split()) == key.text or not re.search(r"\s", span[0])
    support, value = _support(question, sentence[: span.start()] + " " + sentence[span.end() :])
    sure = bool(
        (exact and not key.weak)
        or (exact and " " in key.text and not question.wants_value)
        or (value and (exact or VALUE_NEXT.match(sentence, span.end())))
        or ASSIGNED.match(sentence.lower(), span.end())
        or support > len(question.stems) * (0.3 if exact else 0.5)
    )
    asked = question.text.lower().rstrip("?!. ")
    if asked.count(" ") > 2 and asked in _one_line(sentence).lower():
        sure = at + 1 < len(sentences) and bool(ANSWER.match(sentences[at + 1]))
        sentence = "".join(sentences[at : at + 2])
    elif not (support or value) or sentence.rstrip().endswith(":"):
        sentence = _widened(question, sentences, at)
    return Quotation(_one_line(sentence), len(here) + exact + support + value, sure)


def _find(question: Question, key: Key, text: str) -> re.Match[str] | None:
    """Find a key that is neither part of a longer name nor the name of another kind of thing."""
    allowed = question.stems | question.related | KINDS
    for match in re.finditer(key.pattern, text, re.IGNORECASE):
        before, after = text[: match.start()].lower(), text[match.end() :].lower()
        kind = re.search(r"([^\W\d_]+)[\s_-]\Z", before)
        other = kind and key.kind and kind[1] in KINDS - {key.kind}
        inside = re.search(r"(?:[^\W_]|\d\.)\Z", before) or re.match(r"[^\W_]|\.\d", after)
        joined = re.search(r"([^\W_]+)[-_]\Z", before), re.match(r"[-_]([^\W_]+)", after)
        if not (other or inside) and all(m is None or {m[1], stem(m[1])} & allowed for m in joined):
            return match
    return None


def _support(question: Question, text: str) -> tuple[float, bool]:
    """Weigh the question's other words in a text, and look for a value if it asks for one."""
    held = stems_of(text)
    related = bool(held & question.related)
    weight = len(held & question.stems) + related * 0.5
    known = question.text.lower()
    values = VALUE.findall(text) if question.wants_value else []
    return weight, any(value.lower() not in known for value in values)


def _widened(question: Question, sentences: list[str], at: int) -> str:
    """Join a sentence that only names its key with the next one that says something."""
    for end in range(at + 1, min(at + 1 + NEIGHBOURS, len(sentences))):
        if sentences[end].lstrip().startswith(("}", "]")):
            break
        if any(_support(question, sentences[end])):
            return "".join(sentences[at : end + 1])
    if sentences[at].lstrip().startswith('"'):  # a field of a JSON object
        for start in range(at - 1, max(-1, at - 1 - NEIGHBOURS), -1):
            if sentences[start].lstrip().startswith(("{", "[")):
                break
            if any(_support(question, sentences[start])):
                return "".join(sentences[start : at + 1])
    return sentences[at]


def _one_line(text: str) -> str:
    return " ".join(text.split())
