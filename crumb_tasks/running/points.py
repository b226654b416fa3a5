"""The points of a sweep: ways to search, how each is built, and what keeps one from being tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crumb_tasks.errors import MissingExtraError
from crumb_tasks.search.approximate import (
    HNSW_CONSTRUCTION,
    HNSW_LINKS,
    PQ_CENTROIDS,
    build,
    import_faiss,
    n_cells,
    n_subvectors,
)
from crumb_tasks.search.compressed import BinaryIndex, Int8Index, TruncatedIndex
from crumb_tasks.search.resident import ExactIndex, Resident

_EF = (16, 64, 256)
_PROBES = (1, 8, 32)
EXACT = "exact"

Searches = tuple[tuple[str, Mapping[str, int]], ...]


@dataclass(frozen=True)
class Point:
    """A way to search, built once and searched under one or several settings.

    Attributes:
        name: In a table.
        family: What it is a kind of; points of one family are joined in the plot.
        build: Makes it.
        searches: Name and settings of each search.
        refusal: Why it cannot be tried; empty where it can.
        is_exact: It is the reference.
    """

    name: str
    family: str
    build: Callable[[], Any]
    searches: Searches
    refusal: str = ""
    is_exact: bool = False


def points_for(resident: Resident, dimensions: Sequence[int]) -> Iterator[Point]:
    """Yield the points for a corpus' vectors.

    Args:
        resident: The vectors.
        dimensions: To which the model may be truncated.
    """
    documents = resident.documents
    dimension = documents.shape[1]
    yield _single("exact, float32", EXACT, partial(ExactIndex, documents), is_exact=True)
    yield _single("int8", "int8", partial(Int8Index, documents))
    yield _single("binary", "binary", partial(BinaryIndex, documents, is_rescored=False))
    yield _single("binary, 4x rescored", "binary", partial(BinaryIndex, documents, is_rescored=True))
    shorter = [kept for kept in sorted(dimensions, reverse=True) if kept < dimension]
    for kept in shorter:
        make = partial(TruncatedIndex, documents, kept, is_cosine=resident.is_cosine)
        yield _single(f"truncated to {kept}", "truncated", make)
    if not shorter:
        refusal = "the model declares no shorter (Matryoshka) dimensions"
        yield Point("truncated", "truncated", partial(ExactIndex, documents), (), refusal)
    yield from _with_faiss(resident)


def _with_faiss(resident: Resident) -> Iterator[Point]:
    documents = resident.documents
    n_documents, dimension = documents.shape
    try:
        import_faiss()
        absent = ""
    except MissingExtraError as error:
        absent = str(error)
    few = "" if n_documents >= PQ_CENTROIDS else f"{PQ_CENTROIDS} documents are needed to train it, not {n_documents}"
    cells = n_cells(n_documents)
    no_cells = "" if cells > 1 else f"{n_documents} documents are too few for cells"
    yield _single("flat (FAISS)", "flat", partial(build, "flat", documents), absent)
    graph = f"HNSW {HNSW_LINKS}, {HNSW_CONSTRUCTION}"
    yield _several(graph, "HNSW", partial(build, "hnsw", documents), ("efSearch", _EF), absent)
    probes = tuple(probe for probe in _PROBES if probe <= cells) or (1,)
    yield _several(f"IVF {cells}", "IVF", partial(build, "ivf", documents), ("nprobe", probes), absent or no_cells)
    name = f"IVF {cells}, PQ {n_subvectors(dimension, 8)}"
    yield _several(name, "IVF+PQ", partial(build, "ivfpq", documents), ("nprobe", probes), absent or no_cells or few)
    for numbers in (4, 8):
        name = f"PQ {n_subvectors(dimension, numbers)} bytes"
        yield _single(name, "PQ", partial(build, f"pq{numbers}", documents), absent or few)
    for bits in (8, 4):
        yield _single(f"SQ {bits} bits", "SQ", partial(build, f"sq{bits}", documents), absent)


def _single(name: str, family: str, make: Callable[[], Any], refusal: str = "", *, is_exact: bool = False) -> Point:
    return Point(name, family, make, ((name, {}),), refusal, is_exact)


def _several(
    name: str, family: str, make: Callable[[], Any], setting: tuple[str, Sequence[int]], refusal: str
) -> Point:
    searches = tuple((f"{name}, {setting[0]} {value}", {setting[0]: value}) for value in setting[1])
    return Point(name, family, make, searches, refusal)


def declared_dimensions(model: Any) -> list[int]:
    """Return the dimensions to which a model says that its vectors may be cut (MTEB's ``embed_dim`` is then a list)."""
    told = getattr(getattr(model, "mteb_model_meta", None), "embed_dim", None)
    return [] if told is None or isinstance(told, int) else sorted({int(dimension) for dimension in told})
