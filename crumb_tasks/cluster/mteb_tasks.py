"""MTEB's own retrieval tasks on a worker: loaded and ranked as MTEB does, each as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crumb_tasks.cluster.jobs import Work
from crumb_tasks.errors import DataError


def corpus_of_mteb(work: Work) -> Any:
    """Load the corpus of a task of MTEB's own.

    Raises:
        DataError: It has another number of rows than on the driver.
    """
    import mteb

    task: Any = mteb.get_task(work.task)
    if work.split not in task.eval_splits:
        task.filter_eval_splits([work.split])
    task.load_data(num_proc=work.num_proc)
    task.convert_v1_dataset_format_to_v2(num_proc=work.num_proc)
    corpus = task.dataset[work.subset][work.split]["corpus"]
    if len(corpus) != work.n_rows:
        raise DataError(f"{work.task}: {len(corpus)} corpus rows on this worker, {work.n_rows} on the driver")
    return corpus


def rank_as_mteb_does(
    model: Any, work: Work, corpus: Any, encode_kwargs: Mapping[str, Any]
) -> Mapping[str, Mapping[str, float]]:
    """Rank with MTEB's own wrapper of the model's kind; returns what that returns."""
    from datasets import Dataset
    from mteb.models import (
        CrossEncoderProtocol,
        EncoderProtocol,
        SearchCrossEncoderWrapper,
        SearchEncoderWrapper,
        SearchProtocol,
    )

    search: Any = model
    if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        search = SearchEncoderWrapper(model)
    elif isinstance(model, CrossEncoderProtocol):
        search = SearchCrossEncoderWrapper(model)
    asked = {
        "task_metadata": work.groups[0].task_metadata,
        "hf_split": work.split,
        "hf_subset": work.subset,
        "encode_kwargs": dict(encode_kwargs),
        "num_proc": work.num_proc,
    }
    search.index(corpus, **asked)
    candidates = work.candidates
    found: Mapping[str, Mapping[str, float]] = search.search(
        Dataset(work.queries),
        top_k=work.depth,
        top_ranked=None if candidates is None else {query_id: list(ids) for query_id, ids in candidates.items()},
        **asked,
    )
    return found


def all_queries(n_queries: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the positions of all queries, which form one group in MTEB's own tasks."""
    return np.arange(n_queries, dtype=np.int64)
