"""Titles as ``bert-base-uncased`` gives them back after tokenising and decoding: NCI tells pages apart by them.

Re-implemented without the tokenizer's files from what it does: control characters go, ideographs stand alone, words are
lower-cased and lose their accents, punctuation is split off, and decoding puts one space between words and none before
``. , ? !`` nor around an apostrophe. Of the vocabulary only this matters: a word with a character that no entry has
becomes ``[UNK]``, as does one of more than a hundred characters. All 997 characters of the vocabulary (Apache-2.0,
https://github.com/google-research/bert) are entries by themselves, at the start of a word and inside it, so that every
other word can be spelled and comes back whole.
"""

from __future__ import annotations

import importlib.resources
import re
import unicodedata
from collections.abc import Iterator
from functools import cache

_LONGEST_WORD = 100
_SPECIAL = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))  # noqa: E501  # fmt: skip
"""What decoding replaces, in this order (``clean_up_tokenization`` of transformers)."""


@cache
def vocabulary_characters() -> frozenset[str]:
    """Return the characters of which some entry of the vocabulary is made."""
    file = importlib.resources.files("crumb_tasks").joinpath("builders", "bert_characters.txt")
    return frozenset(file.read_text(encoding="utf-8").removesuffix("\n"))


def normalise_title(title: str) -> str:
    """Return ``title`` as ``bert-base-uncased`` gives it back."""
    parts = _SPECIAL.split(title)  # every second one is a special token, which the tokenizer leaves as it stands
    text = " ".join(word for at, part in enumerate(parts) for word in ([part] if at % 2 else _words(part)))
    for spaced, closed in _CLEANED:
        text = text.replace(spaced, closed)
    return text


def _words(text: str) -> Iterator[str]:
    known = vocabulary_characters()
    for token in _clean(text).split():
        for word in _split_at_punctuation(_without_accents(token.lower())):
            yield word if len(word) <= _LONGEST_WORD and known.issuperset(word) else "[UNK]"


def _clean(text: str) -> str:
    return "".join(filter(None, map(_clean_character, text)))


def _clean_character(character: str) -> str:
    if character in " \t\n\r":
        return " "
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    if category.startswith("C") or character == "\ufffd":
        return ""
    code = ord(character)
    return f" {character} " if any(low <= code <= high for low, high in _IDEOGRAPHS) else character


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")


def _split_at_punctuation(text: str) -> list[str]:
    words: list[str] = []
    is_open = False
    for character in text:
        if _is_punctuation(character):
            words.append(character)
            is_open = False
        elif is_open:
            words[-1] += character
        else:
            words.append(character)
            is_open = True
    return words


def _is_punctuation(character: str) -> bool:
    """Return whether BERT splits here: Unicode's punctuation, and all ASCII that is neither letter, digit nor space."""
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")
