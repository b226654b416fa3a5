"""A task's rules in words, as `crumb-tasks show` and the report's page say them."""

from __future__ import annotations

from crumb_tasks.cards.task import Counts, Source, TaskCard

KINDS = {
    "retrieval": "retrieval over the corpus",
    "reranking": "re-ranking of each query's candidates",
    "choice": "choice among each query's own options",
}
_ALL_ZERO = {
    "zero": "a query whose judgements are all zero counts 0",
    "exclude": "a query whose judgements are all zero is left out and counted",
}


def relevance(task: TaskCard) -> str:
    """Return what counts as relevant."""
    return task.relevant or f"a judgement of {task.relevant_from} or more"


def zero_rule(task: TaskCard) -> str:
    """Return what becomes of queries without a relevant document."""
    return f"{_ALL_ZERO[task.all_zero]}; one without judgements is left out and counted"


def score_rule(task: TaskCard) -> str:
    """Return the main measure, its gain, its cutoff and the depth of rankings."""
    measure, _, cutoff = task.main_measure.partition("@")
    gain = ""
    if "nDCG" in measure or "DCG" in measure:
        gain = ", exponential gain (2^grade - 1)" if "exp" in measure else ", linear gain (the grade itself)"
    where = f", looking at the first {cutoff}" if cutoff else ""
    return f"{task.main_measure}{gain}{where}; rankings are kept to depth {task.depth}"


def judgement_rule(task: TaskCard) -> str:
    """Return where judgements come from and from which grade a document is relevant."""
    families = ", ".join(f"{family} from '{origin}'" for family, origin in task.qrels.items())
    labels = "fractional grades are cut to integers and counted" if task.labels == "truncate" else "grades are integers"
    threshold = f"relevant from grade {task.relevant_from}"
    return "; ".join(part for part in (families, threshold, labels) if part)


def aggregation_rule(task: TaskCard) -> str:
    """Return how values of passages and queries become the task's."""
    parts = ["MaxP: a document ranks where its best passage does"] if task.max_passage else []
    mean = f"mean of each {task.mean_over}'s mean" if task.mean_over else "mean"
    parts += [f"{mean} over the judged queries of the collection; one that a run lacks counts 0"]
    parts += (
        ["queries are variants of base queries (Robustness@k takes the worst of each group)"] if task.groups else []
    )
    parts += ["a query's own document is taken out first"] if task.exclude_self else []
    return "; ".join(parts)


def query_rule(task: TaskCard) -> str:
    """Return what a model gets as a query."""
    prompts = [f"'{task.query_text}'"]
    if task.prompt.from_data:
        prompts.append("each query's own instruction goes to the model as its prompt")
    if task.prompt.query:
        prompts.append(f"prompt for queries: '{task.prompt.query}'")
    if task.prompt.document:
        prompts.append(f"prompt for documents: '{task.prompt.document}'")
    return "; ".join(prompts)


def split_text(upstream: str, counts: Counts | None) -> str:
    """Return a split's upstream name and its expected counts."""
    known = (
        []
        if counts is None
        else [
            f"{value} {name}"
            for name in ("queries", "documents", "passages", "qrels")
            if (value := getattr(counts, name)) is not None
        ]
    )
    doubt = "" if counts is None or counts.verified else " (numbers from a secondary source)"
    return f"the upstream's '{upstream}'" + (": " + ", ".join(known) if known else "") + doubt


def source_text(source: Source) -> str:
    """Return where the data come from."""
    if source.sample:
        return f"embedded in the package (samples/{source.sample})"
    where = [f"Hugging Face Hub {source.hub}"] if source.hub else []
    where += [f"GitHub {source.github}"] if source.github else []
    where += [f"folder {source.path} of the data root"] if source.path else []
    text = " or ".join(where)
    if source.revision:
        text += f" at {source.revision}"
    if source.folder:
        text += f", folder {source.folder}"
    return f"{text}. Your own files: {source.user}" if source.user else text
