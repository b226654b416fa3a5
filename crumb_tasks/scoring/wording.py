"""How scoring says what it found."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_SHOWN = 120


def near_spelling(ids: Sequence[str], known: Sequence[str] | pa.ChunkedArray) -> str:
    """Return a sentence on those of ``ids`` that are known in another spelling, or an empty string.

    Other spellings are Unicode's other normalisation, and more or fewer zeros before a number.
    """
    column = known if isinstance(known, pa.ChunkedArray) else pa.chunked_array([pa.array(known, type=pa.string())])
    return _near_in_unicode(ids, column) or _near_in_zeros(ids, column)


def _near_in_unicode(ids: Iterable[str], column: pa.ChunkedArray) -> str:
    id_by_form = {
        form: own
        for own in ids
        if not own.isascii()
        for form in (unicodedata.normalize("NFC", own), unicodedata.normalize("NFD", own))
        if form != own
    }
    if not id_by_form:
        return ""
    forms = pa.array(list(id_by_form), type=pa.string())
    near = column.filter(pc.is_in(column, value_set=forms)).unique().to_pylist()
    if not near:
        return ""
    return (
        f"{len(near)} of them differ only in Unicode normalisation (NFC or NFD), such as "
        f"{id_by_form[near[0]]!a} for {near[0]!a}: ids are compared as given"
    )


def _near_in_zeros(ids: Iterable[str], column: pa.ChunkedArray) -> str:
    id_by_form = {own.lstrip("0"): own for own in ids if own.isascii() and own.isdigit()}
    if not id_by_form:
        return ""
    forms = pa.array(list(id_by_form), type=pa.string())
    near = column.filter(pc.is_in(pc.utf8_ltrim(column, "0"), value_set=forms)).unique().to_pylist()
    if not near:
        return ""
    count = len({own.lstrip("0") for own in near})
    return (
        f"{count} of them differ{'s' if count == 1 else ''} only in leading zeros, such as "
        f"'{id_by_form[near[0].lstrip('0')]}' for '{near[0]}': ids are compared as given"
    )


def no_max_passage(name: str, *, judges_passages: bool) -> str:
    """Return why MaxP cannot be turned on."""
    labels = "single passages" if judges_passages else "whole documents"
    return f"{name} has labels of {labels}, so no passage can stand for its document; leave --max-passage on out"


def examples(ids: Sequence[str], most: int = 3) -> str:
    """Return the first few of ``ids`` in quotes."""
    shown = ", ".join(f"'{own}'" if len(own) <= _SHOWN else f"'{own[:_SHOWN]}…'" for own in ids[:most])
    return f"{shown} …" if len(ids) > most else shown


def some(count: int, noun: str) -> str:
    """Return the count with its noun in the right number."""
    if count == 1:
        return f"1 {noun}"
    plural = noun.removesuffix("y") + "ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {plural}"
