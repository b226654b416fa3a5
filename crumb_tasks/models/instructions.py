r"""Instruction conditions: which text a model gets for a query and the task's instruction.

=========== ===================================================================================================
native      What MTEB does: a plain model gets the query, one with a prompt dictionary its prefix and the query, one
            with an instruction template the template filled in.
none        No task instruction; the model's own format stays: ``query: q``, or ``Instruct: \nQuery: q`` with an empty
            instruction, which is RAR-b's "w/o" for such models (https://arxiv.org/abs/2404.06347).
prepended   ``instruction q``, RAR-b's "w/" for models without a format of their own. A prefix such as ``query: ``
            stays in front; an instruction template is left out, since the instruction stands in the text already.
separate    The instruction is given apart from the query, as the model takes one: by its own template, else as its
            prompt, which for INSTRUCTOR is the pair of instruction and query. Texts that hold both (InstructIR) are
            taken apart for this, as in all conditions but ``native``.
a template  The template with ``{instruction}`` and ``{query}`` filled in, and nothing of the model's own around it.
=========== ===================================================================================================

Documents get the model's own format in all of them, and an instruction only where the benchmark has one for documents.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal, Self

from crumb_tasks.errors import UsageError, did_you_mean

NAMED = ("native", "none", "prepended", "separate")
_PLACE = re.compile(r"\{(instruction|query)\}")
_OTHER_PLACE = re.compile(r"\{\{\w*\}\}|\{(?!(?:instruction|query)\})\s*\w*\s*(?:[!:][^{}]*)?\}")
_ESCAPES = {r"\n": "\n", r"\t": "\t"}


@dataclass(frozen=True)
class Instructions:
    """One condition.

    Attributes:
        mode: Which.
        template: The template, where the mode is that.
    """

    mode: Literal["native", "none", "prepended", "separate", "template"] = "native"
    template: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        r"""Read a condition from the command line; ``\n`` and ``\t`` in a template stand for line break and tab.

        Raises:
            UsageError: It is neither a known name nor a template with ``{query}``.
        """
        for name in ("native", "none", "prepended", "separate"):
            if text == name:
                return cls(name)
        if "{query}" not in text:
            raise UsageError(
                f"'{text}' is no instruction setting{did_you_mean(text, NAMED)}; it is one of {', '.join(NAMED)}, or a "
                r"template with {query}, as in 'Instruct: {instruction}\nQuery: {query}'"
            )
        for escape, meant in _ESCAPES.items():
            text = text.replace(escape, meant)
        if other := _OTHER_PLACE.search(text):
            raise UsageError(f"the template has '{other[0]}'; only {{instruction}} and {{query}} can be filled in")
        return cls("template", text)

    @property
    def is_native(self) -> bool:
        """Nothing differs from MTEB."""
        return self.mode == "native"

    @property
    def needs_instruction(self) -> bool:
        """A task without an instruction cannot be run under it."""
        return self.mode in {"prepended", "separate"} or "{instruction}" in self.template

    @property
    def token(self) -> str:
        """A short name for folders: the condition's, or for templates ``template-`` and a hash."""
        return self.mode if self.mode != "template" else f"template-{short_hash(self.template)}"

    def text(self, instruction: str, query: str) -> str:
        """Return the text for a query, the model's own format aside."""
        if self.mode == "template":
            value_by_place = {"instruction": instruction, "query": query}
            return _PLACE.sub(lambda place: value_by_place[place[1]], self.template)
        if self.mode == "prepended" and instruction:
            return f"{instruction} {query}"
        return query


def path_safe(name: str) -> str:
    """Return ``name`` as a part of a path: other than letters, digits, ``.``, ``_`` and ``-`` become ``-``."""
    kept = "".join(character if character.isalnum() or character in "._-" else "-" for character in name)
    return kept.strip(".-")


def short_hash(text: str | bytes) -> str:
    """Return the first eight hexadecimal digits of SHA-256: enough to tell a user's conditions apart."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:8]
