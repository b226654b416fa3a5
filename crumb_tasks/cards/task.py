"""The card of one task: its source, its rules, what is expected of its data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from crumb_tasks.cards.fields import TASK_NAME, Frozen, MeasureName, check_measure
from crumb_tasks.errors import UsageError, did_you_mean

_LOADERS = Path(__file__).parents[1] / "loaders"


class Source(Frozen):
    """Where the files come from: the data root first, then the Hub, then GitHub; or the embedded sample.

    Attributes:
        hub: Dataset repository on the Hugging Face Hub, ``org/name``.
        github: Repository on GitHub, ``org/name``.
        revision: Commit that is read from the Hub or GitHub.
        sample: Folder under ``crumb_tasks/samples`` in the package.
        folder: Folder inside the repository before which every file name of the loader is put.
        user: The data are the user's own (licence, login, unreleased): what they are and how to get them. They are
            read from the data root at ``hub``, ``github`` or ``path`` and never downloaded.
        path: For ``user`` sources without a repository: folder below the data root.
        parts: Further repositories, where a benchmark's files stand in several; a loader calls a file of one
            ``part:file``.
    """

    hub: str | None = None
    github: str | None = None
    revision: str | None = None
    sample: str | None = None
    folder: str = ""
    user: str | None = None
    path: str | None = None
    parts: Mapping[str, Source] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        if not (self.hub or self.github or self.sample or self.path):
            raise ValueError("a source needs one of hub, github, sample, path")
        if (self.hub or self.github) and not self.revision and not self.user:
            raise ValueError("a source on the Hub or GitHub needs a pinned revision")
        return self

    @property
    def recorded_revision(self) -> str:
        """What a result says of its data's revision: the pinned one, or where data without one come from."""
        return self.revision or ("sample" if self.sample else "user")

    def locate(self, file: str) -> tuple[Source, str]:
        """Return the source that ``file`` belongs to, itself or one of its parts, and the file's name there."""
        part, colon, rest = file.partition(":")
        return (self.parts[part], rest) if colon and part in self.parts else (self, file)


class Counts(Frozen):
    """Expected numbers of one split; ``validate`` compares, the loader refuses only where ``strict``."""

    queries: int | None = None
    documents: int | None = None
    passages: int | None = None
    qrels: int | None = None
    strict: bool = False
    verified: bool = True
    """False: from a secondary source; a difference is reported as a note."""


class Dangling(Frozen):
    """How many judgements or candidates may name something that is not there before loading fails."""

    queries: int = 0
    documents: int = 0
    candidates: int = 0


class Prompt(Frozen):
    """The instruction that reaches a model as MTEB's prompt.

    Attributes:
        query: One instruction for all queries.
        document: One for all documents; the benchmark must ask for it.
        from_data: Each query's own instruction stands in the data (the collection's ``prompt`` column).
    """

    query: str | None = None
    document: str | None = None
    from_data: bool = False


class TaskCard(Frozen):
    """One task. Field names are the keys of ``[[tasks]]`` and ``[defaults]``.

    Attributes:
        name: Task name, ``[A-Za-z0-9.]+``, unique ignoring case.
        benchmark: The card it stands in (filled in by the reader).
        title: For people.
        description: What is searched for in what.
        need: The user's need that it tests.
        relevant: What counts as relevant, in words.
        kind: ``retrieval`` over the corpus, ``reranking`` of candidates, ``choice`` among a query's own options.
        loader: Module in ``crumb_tasks/loaders``.
        options: What that loader needs to know; the loader checks it.
        source: Where files come from.
        splits: This package's split name → the upstream name. The first is evaluated by default.
        main_measure: The task's main score.
        measures: Further measures that results and ``score`` show by default.
        qrels: Label family (``graded``, ``binary``) → upstream column or file.
        relevant_from: Relevant when a graded label is at least this.
        labels: ``integral`` refuses fractional labels, ``truncate`` cuts and counts them.
        all_zero: A query whose judgements are all zero counts ``zero`` or is left out (``exclude``).
        unjudged: A query without judgements is left out (``exclude``, counted).
        mean_over: A partition of the queries (the loader's ``query_labels``): a measure is the unweighted mean of its
            parts' means, as in benchmarks of many data sets; empty: the mean of all queries.
        max_passage: Passages stand for their parent document; the best one counts.
        depth: How many documents of a ranking are kept.
        exclude_self: A document whose id is the query's own is taken out before scoring.
        query_text: Template over the query's columns that gives the text sent to a model.
        prompt: Instructions as MTEB prompts.
        empty_text: Sent in the place of an empty text.
        groups: Queries are variants of base queries (Robustness@k).
        expected: Expected counts by split.
        dangling: Allowance for dangling references.
        facts: Upstream mistakes and oddities that users should know, one line each.
        public: A stranger can download the data.
        sample: An original sample that never stands beside published numbers.
        schema_verified: The upstream schema was seen on real data.
        license: SPDX identifier in lower case, or MTEB's ``not specified``.
        adapted_from: MTEB tasks or datasets that this one derives from.
        languages: MTEB's language codes.
        domains: MTEB's domains.
        date: First and last day of the texts, ISO.
        annotations: MTEB's annotator type.
        creation: MTEB's sample creation method.
    """

    name: str
    benchmark: str = ""
    title: str = ""
    description: str
    need: str = ""
    relevant: str = ""
    kind: Literal["retrieval", "reranking", "choice"] = "retrieval"
    loader: str
    options: Mapping[str, Any] = Field(default_factory=dict)
    source: Source
    splits: Mapping[str, str] = Field(default_factory=lambda: {"test": "test"})
    main_measure: MeasureName = "nDCG@10"
    measures: tuple[MeasureName, ...] = ()
    qrels: Mapping[Literal["graded", "binary"], str] = Field(default_factory=dict)
    relevant_from: int = 1
    labels: Literal["integral", "truncate"] = "integral"
    all_zero: Literal["zero", "exclude"] = "zero"
    unjudged: Literal["exclude"] = "exclude"
    mean_over: str = ""
    max_passage: bool = False
    depth: int = Field(default=1000, ge=1)
    exclude_self: bool = False
    query_text: str = "{text}"
    prompt: Prompt = Prompt()
    empty_text: str = "-"
    groups: bool = False
    expected: Mapping[str, Counts] = Field(default_factory=dict)
    dangling: Dangling = Dangling()
    facts: tuple[str, ...] = ()
    public: bool = True
    sample: bool = False
    schema_verified: bool = False
    license: str = "not specified"
    adapted_from: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("eng-Latn",)
    domains: tuple[str, ...] = ()
    date: tuple[str, str] | None = None
    annotations: str | None = None
    creation: str | None = None
    paper: str = ""
    bibtex: str = ""

    @field_validator("name")
    @classmethod
    def _has_a_file_name(cls, name: str) -> str:
        if not TASK_NAME.fullmatch(name):
            raise ValueError(f"task name '{name}' may hold only letters, digits and dots, since it becomes a file name")
        return name

    @field_validator("loader")
    @classmethod
    def _has_a_loader(cls, loader: str) -> str:
        if loader not in (known := loader_names()):
            raise ValueError(f"no loader '{loader}' in crumb_tasks/loaders{did_you_mean(loader, known)}")
        return loader

    @field_validator("main_measure")
    @classmethod
    def _main_measure_exists(cls, measure: str) -> str:
        return check_measure(measure)

    @field_validator("measures")
    @classmethod
    def _measures_exist(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_measure(measure) for measure in measures)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not self.splits:
            raise ValueError('splits is empty; name at least one, as in {test = "test"}')
        for split in self.expected:
            if split not in self.splits:
                raise ValueError(
                    f"expected names the split '{split}', which splits lacks{did_you_mean(split, self.splits)}"
                )
        if self.sample != ("Sample" in self.name):
            raise ValueError("sample tasks, and only they, have 'Sample' in their name")
        if self.sample and self.public:
            raise ValueError("a sample is not public: set public = false, so that listings without names skip it")
        return self

    @property
    def default_split(self) -> str:
        """The split that is evaluated when none is named."""
        return next(iter(self.splits))

    def upstream_split(self, split: str) -> str:
        """Return the upstream name of ``split``.

        Raises:
            UsageError: The card has no such split; the message lists those it has.
        """
        if split not in self.splits:
            known = ", ".join(self.splits)
            raise UsageError(f"{self.name} has no split '{split}'; it has: {known}{did_you_mean(split, self.splits)}")
        return self.splits[split]


@cache
def loader_names() -> frozenset[str]:
    """Names of the modules in ``crumb_tasks/loaders`` that load a format, without importing them."""
    return frozenset(path.stem for path in _LOADERS.glob("*.py") if not path.stem.startswith("_"))
