"""What a loader needs to know from a card, checked."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from crumb_tasks.cards import TaskCard
from crumb_tasks.errors import CardError, did_you_mean


class LoaderOptions(BaseModel):
    """Base of every loader's ``Options``: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionsType = TypeVar("OptionsType", bound=LoaderOptions)


def read_options(task: TaskCard, options: type[OptionsType]) -> OptionsType:
    """Return the card's ``options`` as the loader's own type.

    Raises:
        CardError: An option is unknown, missing or wrong; names the task, the option and the remedy.
    """
    try:
        return options.model_validate(dict(task.options))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            problem = f"the loader '{task.loader}' has no such option{did_you_mean(name, options.model_fields)}"
        raise CardError(f"{task.name}: options.{name}: {problem}") from error
