"""What `checks` reports about data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Finding:
    """One observation about a task's data.

    Attributes:
        severity: ``finding``: the data break a promise of the card; ``note``: worth knowing.
        check: What was looked at, a short name in lower case.
        message: What was seen, for a person.
        count: How many cases, where that is a number.
        examples: Up to a few of them.
    """

    severity: Literal["finding", "note"]
    check: str
    message: str
    count: int | None = None
    examples: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the observation as JSON values."""
        return {
            "severity": self.severity,
            "check": self.check,
            "message": self.message,
            "count": self.count,
            "examples": list(self.examples),
        }


def finding(check: str, message: str, count: int | None = None, examples: tuple[str, ...] = ()) -> Finding:
    """Return an observation that breaks a promise."""
    return Finding("finding", check, message, count, examples)


def note(check: str, message: str, count: int | None = None, examples: tuple[str, ...] = ()) -> Finding:
    """Return an observation that is worth knowing."""
    return Finding("note", check, message, count, examples)
