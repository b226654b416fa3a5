"""The rarer measures, computed by ir_measures and the tools it wraps.

The tools break ties in ways of their own, read files that are split at spaces, or want integers as query ids. So they
get neutral ids, and instead of scores the ranks of our total order, counted down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.collection import Qrels
from crumb_tasks.errors import MissingExtraError, UsageError
from crumb_tasks.measures.notation import Measure
from crumb_tasks.runs import Run

Nuggets = Sequence[Mapping[str, Iterable[str]]]

_HIGHEST_OF_GDEVAL: Final = 4


def evaluate(
    measures: Iterable[Measure],
    run: Run,
    graded: Qrels,
    binary: Qrels | None = None,
    *,
    relevant_from: int = 1,
    nuggets: Nuggets | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Compute measures through ir_measures.

    Args:
        measures: Delegated ones.
        run: Rankings.
        graded: Judgements of the same queries, in the same order.
        binary: Labels for the measures that have a threshold, where the task has such labels.
        relevant_from: That threshold on the graded labels; with binary labels it is 1.
        nuggets: For each query its nuggets and the documents that support them.

    Returns:
        Canonical name → values, one for each query of ``run``; 0 for a query without documents.

    Raises:
        MissingExtraError: A tool is not installed.
        UsageError: ir_measures has no tool for a measure with these parameters.
    """
    values: dict[str, NDArray[np.float64]] = {}
    scored = _scored(run)
    for measure in measures:
        own_labels = measure.family == "binary" and measure.rel is None and binary is not None
        threshold = measure.rel if measure.rel is not None else 1 if own_labels or measure.needs else relevant_from
        theirs = _translate(measure, threshold)
        if measure.needs == "nuggets":
            judged = _judged_nuggets(run, nuggets or [{} for _ in run.query_ids])
        else:
            judged = _judged(run, binary if own_labels and binary is not None else graded)
        if measure.kernel == "ERR":
            _refuse_high_grades(measure, graded)
        found = np.zeros(len(run))
        if judged and scored:
            for result in _calculate(theirs, judged, scored):
                found[int(result.query_id) - 1] = result.value
        values[measure.name] = found
    return values


def _translate(measure: Measure, threshold: int) -> Any:
    """Return ir_measures' object for ``measure``, once a tool for it is there."""
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError(f"the measure {measure.name}", "measures") from error
    registered = ir_measures.measures.registry[measure.kernel]
    parameters: dict[str, Any] = dict(measure.params)
    if "gains" in parameters:
        parameters["gains"] = dict(parameters["gains"])
    if measure.cutoff is not None:
        parameters["cutoff"] = measure.cutoff
    if "rel" in registered.SUPPORTED_PARAMS:
        parameters["rel"] = threshold
    theirs = registered(**parameters)
    if not ir_measures.DefaultPipeline.supports(theirs):
        able = [tool for tool in ir_measures.DefaultPipeline.providers if tool.supports(theirs)]
        if any(tool.NAME in {"cwl_eval", "pyndeval"} for tool in able):
            raise MissingExtraError(f"the measure {measure.name}", "measures")
        if able:
            raise UsageError(f"the measure {measure.name} needs {able[0].NAME}: {able[0].install_instructions()}")
        shorter = re.sub(r"@\d+$", "", measure.name)
        remedy = f"; try {shorter}" if shorter != measure.name else ""
        raise UsageError(f"no tool of ir_measures computes {measure.name}{remedy}")
    return theirs


def _refuse_high_grades(measure: Measure, graded: Qrels) -> None:
    if (highest := int(graded.grades.max(initial=0))) > _HIGHEST_OF_GDEVAL:
        raise UsageError(
            f"{measure.name} is computed by gdeval, which knows grades up to {_HIGHEST_OF_GDEVAL}, not {highest}"
        )


def _calculate(theirs: Any, judged: list[Any], scored: list[Any]) -> Iterable[Any]:
    import ir_measures

    return ir_measures.iter_calc([theirs], judged, scored)


def _scored(run: Run) -> list[Any]:
    from ir_measures import ScoredDoc

    countdown = np.repeat(run.depths, run.depths) - run.row_ranks + 1
    return [
        ScoredDoc(str(query + 1), f"d{code}", float(left))
        for query, code, left in zip(run.row_queries.tolist(), run.codes.tolist(), countdown.tolist(), strict=True)
    ]


def _judged(run: Run, qrels: Qrels) -> list[Any]:
    """Return ir_measures' judgements, without the queries that have negative grades only.

    Those have nothing to find, and pytrec_eval 0.5.11 writes outside its memory on them (crashes, endless loops).
    """
    from ir_measures import Qrel

    highest = np.full(len(qrels), -1, dtype=np.int64)
    np.maximum.at(highest, qrels.row_queries, qrels.grades)
    names = _neutral_names(run, qrels.documents.ids.to_pylist())
    return [
        Qrel(str(query + 1), names[code], grade)
        for query, code, grade in zip(
            qrels.row_queries.tolist(), qrels.codes.tolist(), qrels.grades.tolist(), strict=True
        )
        if highest[query] >= 0
    ]


def _judged_nuggets(run: Run, nuggets: Nuggets) -> list[Any]:
    from ir_measures import Qrel

    triples = [
        (query, number, document)
        for query, of_query in enumerate(nuggets)
        for number, documents in enumerate(of_query.values())
        for document in sorted(documents)
    ]
    names = _neutral_names(run, [document for _, _, document in triples])
    return [
        Qrel(str(query + 1), name, 1, iteration=str(number + 1))
        for (query, number, _), name in zip(triples, names, strict=True)
    ]


def _neutral_names(run: Run, documents: Sequence[str]) -> list[str]:
    """Return names without spaces: those that `_scored` gives to retrieved documents, others for the rest."""
    number_by_unretrieved: dict[str, int] = {}
    return [
        f"d{code}" if code >= 0 else f"u{number_by_unretrieved.setdefault(document, len(number_by_unretrieved))}"
        for code, document in zip(run.documents.find(documents).tolist(), documents, strict=True)
    ]
