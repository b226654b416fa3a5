"""NCI's collections (Wang et al. 2022, arXiv 2206.02743): as `crumb_tasks.builders` makes them, or a hosted copy.

No host has the data of record, and copies under one name differ in text, ids and counts. So a task reads the layouts
that its card names, checks what makes them its own, and names what else it finds instead of reading it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
import pyarrow as pa

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection
from crumb_tasks.errors import DataError
from crumb_tasks.loaders import _nci_copies as copies
from crumb_tasks.loaders._finding import Finding, finding, note
from crumb_tasks.loaders._manifest import MANIFEST, Manifest, read_manifest, sha256_of
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.loaders.beir import Judgements, make_qrels
from crumb_tasks.sources import OpenedSource

_BUILT = (MANIFEST, "corpus.parquet", "queries.parquet", "qrels.parquet")


class Options(LoaderOptions):
    """Which recipe.

    Attributes:
        recipe: What a build's manifest must say.
        builder: Module of `crumb_tasks.builders` that builds it; empty for a copy that nobody can build here.
        layouts: What may lie in the folder, in order of preference.
        unseen_from: A document with this number or a higher one has no training query.
        parts: Expected numbers of queries whose document has (``seen``) and has no training query (``unseen``).
        one_relevant: Every query has one relevant document.
    """

    recipe: str
    builder: str = ""
    layouts: tuple[Literal["built", "tsv", "ddro", "genret", "triviaqa_tsv"], ...] = ("built",)
    unseen_from: int | None = None
    parts: Mapping[Literal["seen", "unseen"], int] = {}
    one_relevant: bool = False


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the files of the layout that the task reads first."""
    del split
    return _files_of(read_options(task, Options).layouts[0])


def _files_of(layout: str) -> tuple[str, ...]:
    return _BUILT if layout == "built" else copies.FILES[layout]


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split that is scored, from whichever of the task's layouts is there.

    Raises:
        DataError: Another recipe's files are there, or the data are not what the recipe gives.
    """
    options = read_options(task, Options)
    layout = _layout_of(task, options, source)
    paths = source.paths(_files_of(layout))
    if layout == "built":
        _check_manifest(task, options, read_manifest(paths[MANIFEST]), source)
        parts = copies.read_built(paths, empty_text=task.empty_text)
    else:
        parts = copies.READERS[layout](paths, empty_text=task.empty_text)
    queries = text_table(
        {"id": parts.query_ids, "text": parts.query_texts}, empty_text=task.empty_text, where=task.name
    ).table
    collection = Collection(
        name=task.name,
        split=split,
        corpus=parts.corpus.table,
        queries=queries,
        qrels={"graded": make_qrels(task, parts.query_ids, parts.judgements)},
        query_labels=_labels(task, options, parts.judgements, parts.subset_by_query),
        n_empty_texts=parts.corpus.n_empty,
        notes=(f"read from {parts.what}",),
    )
    if options.one_relevant:
        _check_one_relevant(task, collection)
    return collection


def _layout_of(task: TaskCard, options: Options, source: OpenedSource) -> str:
    whole = (layout for layout in options.layouts if not source.missing(_files_of(layout)))
    if (found := next(whole, None)) is not None:
        return found
    for layout, sign in copies.SIGNS.items():
        if layout not in options.layouts and source.has(sign):
            raise DataError(
                f"{task.name}: {source.origin} holds {sign}, which is of {copies.RECIPES[layout]}: another recipe; "
                f"{task.name} reads {options.recipe}"
            )
    begun = (layout for layout in options.layouts if any(map(source.has, _files_of(layout))))
    return next(begun, options.layouts[0])


def _check_manifest(task: TaskCard, options: Options, manifest: Manifest, source: OpenedSource) -> None:
    if manifest.recipe != options.recipe:
        raise DataError(
            f"{task.name}: {source.origin} was built by the recipe '{manifest.recipe}'; {task.name} is "
            f"'{options.recipe}', and their numbers do not compare"
        )
    for file in manifest.files:
        if source.has(file.name) and (size := source.path(file.name).stat().st_size) != file.bytes:
            raise DataError(
                f"{source.path(file.name)}: {size} bytes, {file.bytes} when it was built; build the task again"
            )


def _labels(
    task: TaskCard, options: Options, judgements: Judgements, given: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return which queries are about a document with training queries."""
    label_by_query = dict(given)
    if options.unseen_from is not None:
        by_number = {
            query_id: "unseen" if int(doc_id) >= options.unseen_from else "seen"
            for query_id, doc_id in zip(*judgements[:2], strict=True)
        }
        wrong = next((query for query, label in given.items() if by_number.get(query, label) != label), None)
        if wrong is not None:
            raise DataError(
                f"{task.name}: query '{wrong}' is {given[wrong]} by the data and {by_number[wrong]} by its document's "
                f"number ({options.unseen_from} and above are unseen): the documents are numbered by another recipe"
            )
        label_by_query = by_number
    counts = Counter(label_by_query.values())
    for part, expected in options.parts.items():
        if counts[part] != expected:
            raise DataError(f"{task.name}: {counts[part]} {part} queries, expected {expected}: another recipe")
    return {"seen": label_by_query} if label_by_query else {}


def _check_one_relevant(task: TaskCard, collection: Collection) -> None:
    counts = collection.graded.counts
    if (counts != 1).any():
        at = int(np.flatnonzero(counts != 1)[0])
        raise DataError(
            f"{task.name}: query '{collection.graded.query_ids[at]}' has {counts[at]} relevant documents; by the "
            "recipe each has one, the page of its own title"
        )


def inspect(task: TaskCard, split: str, source: OpenedSource) -> Iterator[Finding]:
    """Yield what a build's manifest says, and files that are no longer what it says."""
    del split
    options = read_options(task, Options)
    if _layout_of(task, options, source) != "built":
        return
    manifest = read_manifest(source.path(MANIFEST))
    counted = ", ".join(f"{count} {name}" for name, count in manifest.counts.items())
    yield note("build", f"recipe {manifest.recipe}, version {manifest.version}: {counted}")
    for entry in manifest.notes:
        yield note("build", entry)
    changed = [
        file.name
        for file in manifest.files
        if source.has(file.name) and sha256_of(source.path(file.name)) != file.sha256
    ]
    if changed:
        yield finding("build", f"{len(changed)} files are not those that were built", len(changed), tuple(changed))
    yield from _check_titles(source)


def _check_titles(source: OpenedSource) -> Iterator[Finding]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    titles: pa.ChunkedArray = pq.read_table(source.path("corpus.parquet"), columns=["title"]).column("title")
    if (n_doubled := len(titles) - pc.count_distinct(titles).as_py()) > 0:
        yield finding("build", f"{n_doubled} pages share a title with another; titles tell pages apart", n_doubled)
