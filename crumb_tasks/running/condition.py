"""The condition of a run: everything that makes its results others than MTEB's of the same model and task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crumb_tasks.models import Instructions, LoadOptions
from crumb_tasks.running.first_stage import FirstStage
from crumb_tasks.running.rewriting import RewrittenQueries


@dataclass(frozen=True)
class Condition:
    """What a model runs under.

    Attributes:
        instructions: Which instructions queries carry.
        rewritten: Other texts for the queries.
        first_stage: Whose candidates are re-ranked, else the whole corpus is searched.
        depth: How many of them.
        options: How the model is loaded.
    """

    instructions: Instructions = field(default_factory=Instructions)
    rewritten: RewrittenQueries | None = None
    first_stage: FirstStage | None = None
    depth: int = 100
    options: LoadOptions = field(default_factory=LoadOptions)

    @property
    def experiment(self) -> dict[str, str | int]:
        """MTEB's ``experiment_kwargs``: empty for MTEB's own setting, whose results are MTEB's own."""
        found: dict[str, str | int] = dict(self.options.experiment)
        if not self.instructions.is_native:
            found["instructions"] = self.instructions.token
        if self.rewritten is not None:
            found["queries"] = self.rewritten.token
        if self.first_stage is not None:
            found["rerank"] = self.first_stage.token
            found["depth"] = self.depth
        return found

    @property
    def label(self) -> str:
        """The condition in a table."""
        return label_of(self.experiment)

    def describe(self) -> dict[str, Any]:
        """Return the condition in full, where the experiment has only hashes."""
        described: dict[str, Any] = {"instructions": self.instructions.mode}
        if self.instructions.template:
            described["template"] = self.instructions.template
        if self.rewritten is not None:
            described["queries"] = {"name": self.rewritten.name, "sha256": self.rewritten.sha256}
        if self.first_stage is not None:
            described["first_stage"] = {"name": self.first_stage.name, "hash": self.first_stage.hash}
            described["rerank_depth"] = self.depth
        described |= {key: value for key, value in self.options.experiment.items() if key != "prompt"}
        if self.options.prompts:
            described["prompts"] = dict(self.options.prompts)
        return described


def label_of(experiment: Any) -> str:
    """Return an experiment as a table shows it; ``native`` where nothing differs from MTEB."""
    return ", ".join(f"{key} {value}" for key, value in sorted((experiment or {}).items())) or "native"
