"""Cards → MTEB's task metadata, and where MTEB finds a task's descriptive statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mteb.abstasks.task_metadata import TaskMetadata

from crumb_tasks.cards import TaskCard
from crumb_tasks.measures import mteb_key, parse_measure


class CardTaskMetadata(TaskMetadata):
    """MTEB's task metadata, with descriptive statistics in this package instead of MTEB's folder.

    Attributes:
        has_final_texts: The queries' texts are all that a model is to get: nothing goes in front of them.
    """

    has_final_texts: bool = False

    @property
    def descriptive_stat_path(self) -> Path:
        """The file of the task's statistics: what the package ships, or what this machine computed."""
        computed = computed_statistics(self.name)
        shipped = shipped_statistics(self.name)
        return shipped if shipped.exists() and not computed.exists() else computed


def shipped_statistics(name: str) -> Path:
    """Return where this package keeps the statistics of the task ``name``, whether or not it has some."""
    return Path(__file__).parent / "descriptive_stats" / f"{name}.json"


def computed_statistics(name: str) -> Path:
    """Return where statistics of the task ``name`` are written when they are computed."""
    from crumb_tasks.sources import cache_dir

    return cache_dir() / "descriptive_stats" / f"{name}.json"


def metadata_of(card: TaskCard) -> CardTaskMetadata:
    """Return MTEB's metadata for ``card``.

    Raises:
        ValidationError: MTEB does not know a domain, licence or other term of the card.
    """
    source = card.source
    fields: dict[str, Any] = {
        "name": card.name,
        "description": card.description,
        "dataset": {
            "path": source.hub or source.github or source.path or f"crumb_tasks/samples/{source.sample}",
            "revision": source.recorded_revision,
        },
        "type": "Retrieval" if card.kind == "retrieval" else "Reranking",
        "category": "t2t",
        "modalities": ["text"],
        "eval_splits": [card.default_split],
        "eval_langs": list(card.languages),
        "main_score": mteb_key(parse_measure(card.main_measure)),
        "date": card.date,
        "domains": list(card.domains) or None,
        "task_subtypes": [],
        "license": card.license,
        "annotations_creators": card.annotations,
        "dialect": [],
        "sample_creation": card.creation,
        "bibtex_citation": card.bibtex,
        "reference": card.paper if card.paper.startswith("http") else None,
        "adapted_from": list(card.adapted_from) or None,
        "is_public": card.public,
        "prompt": prompt_of(card.prompt.query, card.prompt.document),
    }
    return CardTaskMetadata.model_validate(fields)


def prompt_of(query: str | None, document: str | None) -> dict[str, str] | None:
    """Return a prompt as MTEB has it. An empty one is left out: MTEB would put its default sentence in its place."""
    prompt = {key: text for key, text in (("query", query), ("document", document)) if text}
    return prompt or None
