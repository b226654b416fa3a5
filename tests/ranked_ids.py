"""A model with a search of its own that returns what it was given: rankings of ids, as a generative retriever does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mteb.models import ModelMeta


class RankedIds:
    """Ranks by a table, by MTEB's protocol for models that search.

    Args:
        score_by_doc_by_query: The rankings; a query that is not there gets none.
        name: What MTEB calls the model.
    """

    def __init__(
        self, score_by_doc_by_query: Mapping[str, Mapping[str, float]], name: str = "tests/ranked-ids"
    ) -> None:
        self._scores = score_by_doc_by_query
        self.mteb_model_meta = ModelMeta.create_empty({"name": name, "revision": "1"})

    def index(self, corpus: Any, **_: Any) -> None:
        """Need no corpus."""

    def search(self, queries: Any, *, top_k: int, **_: Any) -> dict[str, dict[str, float]]:
        """Return the first ``top_k`` of each ranking."""
        found = {}
        for query_id in queries["id"]:
            ranked = sorted(self._scores.get(query_id, {}).items(), key=lambda item: -item[1])
            found[query_id] = dict(ranked[:top_k])
        return found
