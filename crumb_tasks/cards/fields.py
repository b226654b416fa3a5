"""What the parts of a card have in common: they are frozen, and measures are checked when a card is read."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from crumb_tasks.errors import UsageError
from crumb_tasks.measures import parse_measure

TASK_NAME = re.compile(r"[A-Za-z0-9.]+")


class Frozen(BaseModel):
    """A part of a card: nothing changes it, and an unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def check_measure(text: str) -> str:
    """Return a measure's canonical name, for a validator."""
    try:
        return parse_measure(text).name
    except UsageError as error:
        raise ValueError(str(error)) from error


MeasureName = Annotated[str, Field(description="a measure in ir_measures' notation, such as nDCG@10")]
