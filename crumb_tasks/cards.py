"""Cards: everything known about a benchmark, as data.

One TOML file per benchmark stands in ``task_metadata/``. A file holds the benchmark's own facts, ``[defaults]`` that
each of its ``[[tasks]]`` inherits (tables are merged key by key), and ``[[aggregates]]`` and ``[[benchmarks]]`` made of
them. A card is frozen, and a key that nobody reads is refused: a misspelt rule must not be silently without effect.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from crumb_tasks.errors import CardError, UsageError, did_you_mean
from crumb_tasks.measures import parse_measure

_PACKAGE = Path(__file__).parent
TASK_NAME = re.compile(r"[A-Za-z0-9.]+")
_MISSPELT = 0.9
"""From this likeness on a name that no card has is a misspelt one of ours, below it may be a task of MTEB's."""
_PUBLISHED_DECIMALS = 10
"""A percentage divided by 100 is the number that is meant, 0.4961 and not 0.49609999999999999."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _check_measure(text: str) -> str:
    try:
        return parse_measure(text).name
    except UsageError as error:
        raise ValueError(str(error)) from error


MeasureName = Annotated[str, Field(description="a measure in ir_measures' notation, such as nDCG@10")]


class Source(_Frozen):
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
    """

    hub: str | None = None
    github: str | None = None
    revision: str | None = None
    sample: str | None = None
    folder: str = ""
    user: str | None = None
    path: str | None = None

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        if not (self.hub or self.github or self.sample or self.path):
            raise ValueError("a source needs one of hub, github, sample, path")
        if (self.hub or self.github) and not self.revision and not self.user:
            raise ValueError("a source on the Hub or GitHub needs a pinned revision")
        return self


class Counts(_Frozen):
    """Expected numbers of one split; ``validate`` compares, the loader refuses only where ``strict``."""

    queries: int | None = None
    documents: int | None = None
    passages: int | None = None
    qrels: int | None = None
    strict: bool = False
    verified: bool = True
    """False: from a secondary source; a difference is reported as a note."""


class Dangling(_Frozen):
    """How many judgements or candidates may name something that is not there before loading fails."""

    queries: int = 0
    documents: int = 0
    candidates: int = 0


class Prompt(_Frozen):
    """The instruction that reaches a model as MTEB's prompt.

    Attributes:
        query: One instruction for all queries.
        document: One for all documents; the benchmark must ask for it.
        from_data: Each query's own instruction stands in the data (the collection's ``prompt`` column).
    """

    query: str | None = None
    document: str | None = None
    from_data: bool = False


class Published(_Frozen):
    """A published number, always a reference and never an input.

    Attributes:
        task: Task or aggregate name.
        system: Model or system as published.
        measure: Measure or ``accuracy``; the value is on the scale 0 to 1.
        value: The number.
        setting: What else has to be equal for it to be comparable.
        source: Paper, table, page.
        model: MTEB's name of the system, where MTEB runs it in this very setting; reports put the two side by side.
        verified: False for a secondary source.
    """

    task: str
    system: str
    measure: str
    value: float
    setting: str = ""
    source: str
    model: str = ""
    verified: bool = True


class PublishedTable(_Frozen):
    """A published table; the reader makes each of its cells a `Published`.

    Attributes:
        source: Paper and table.
        measure: As in `Published`.
        setting: As in `Published`.
        scale: What 1 is in the table: 1, or 100 for percentages.
        tasks: What the columns are of: tasks, aggregates, named groups of an aggregate.
        rows: System → its values; ``nan`` is an empty cell.
        models: System → MTEB's name of it, as in `Published`.
        verified: As in `Published`.
    """

    source: str
    measure: str
    setting: str = ""
    scale: float = Field(default=1.0, gt=0)
    tasks: tuple[str, ...] = Field(min_length=1)
    rows: Mapping[str, tuple[float, ...]]
    models: Mapping[str, str] = Field(default_factory=dict)
    verified: bool = True

    @model_validator(mode="after")
    def _rows_fit_the_columns(self) -> Self:
        for system, values in self.rows.items():
            if len(values) != len(self.tasks):
                raise ValueError(f"the row of '{system}' has {len(values)} values for {len(self.tasks)} columns")
        for system in self.models:
            if system not in self.rows:
                raise ValueError(f"models names '{system}', which has no row{did_you_mean(system, self.rows)}")
        return self

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of a `Published` for each cell that is not empty."""
        shared = {"measure": self.measure, "setting": self.setting, "source": self.source, "verified": self.verified}
        for system, values in self.rows.items():
            own = shared | {"system": system, "model": self.models.get(system, "")}
            for task, value in zip(self.tasks, values, strict=True):
                if not math.isnan(value):
                    yield own | {"task": task, "value": round(value / self.scale, _PUBLISHED_DECIMALS)}


class _PublishedTables(_Frozen):
    published_tables: tuple[PublishedTable, ...] = ()


class TaskCard(_Frozen):
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
        max_passage: Passages stand for their parent document; the best one counts.
        depth: How many documents of a ranking are kept.
        exclude_self: A document whose id is the query's own is taken out before scoring.
        query_text: Template over the query's columns that gives the text sent to a model.
        prompt: Instructions as MTEB prompts.
        empty_text: Sent in the place of an empty text.
        groups: Queries are variants of base queries (Robustness@k).
        extras: Additional values that results carry (names known to ``scoring``).
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
    max_passage: bool = False
    depth: int = Field(default=1000, ge=1)
    exclude_self: bool = False
    query_text: str = "{text}"
    prompt: Prompt = Prompt()
    empty_text: str = "-"
    groups: bool = False
    extras: tuple[str, ...] = ()
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
        return _check_measure(measure)

    @field_validator("measures")
    @classmethod
    def _measures_exist(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_check_measure(measure) for measure in measures)

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


class Reduction(_Frozen):
    """A mean over members, which may be means themselves.

    Attributes:
        name: How tables call it; needed for nested ones.
        mean: ``arithmetic`` or ``geometric``.
        members: Task names (of this package or of MTEB) or nested reductions.
    """

    name: str = ""
    mean: Literal["arithmetic", "geometric"] = "arithmetic"
    members: tuple[str | Reduction, ...] = Field(min_length=1)

    def task_names(self) -> Iterator[str]:
        """Yield the task names of all levels, in order."""
        for member in self.members:
            if isinstance(member, str):
                yield member
            else:
                yield from member.task_names()

    def group_names(self) -> Iterator[str]:
        """Yield the names of the nested reductions, in order."""
        for member in self.members:
            if not isinstance(member, str):
                yield member.name
                yield from member.group_names()


class RefusedRevision(_Frozen):
    """Results of a member on a data revision that is known to be wrong."""

    task: str
    revision: str
    reason: str


class AggregateCard(_Frozen):
    """Several tasks' values reduced to one.

    Attributes:
        name: Task name of the aggregate, under the same rules as a task's.
        title: For people.
        description: What it says.
        measure: The members' measure that is reduced; every member must emit it.
        reduction: The mean and its members.
        splits: Splits it has a value for; the first is the default.
        refused: Member results that may not enter.
        reported: Other measures whose value under the same reduction a report shows beside it.
        beside: Other reductions of the measure that a report shows beside it, each with a name; they may have members
            that the aggregate lacks.
        facts: What users should know.
    """

    name: str
    benchmark: str = ""
    title: str = ""
    description: str
    need: str = ""
    measure: MeasureName = "nDCG@10"
    reduction: Reduction
    splits: tuple[str, ...] = ("test",)
    refused: tuple[RefusedRevision, ...] = ()
    reported: tuple[MeasureName, ...] = ()
    beside: tuple[Reduction, ...] = ()
    facts: tuple[str, ...] = ()
    public: bool = True
    sample: bool = False
    license: str = "not specified"
    paper: str = ""
    bibtex: str = ""

    @field_validator("name")
    @classmethod
    def _has_a_file_name(cls, name: str) -> str:
        if not TASK_NAME.fullmatch(name):
            raise ValueError(
                f"aggregate name '{name}' may hold only letters, digits and dots, since it becomes a file name"
            )
        return name

    @field_validator("measure")
    @classmethod
    def _measure_exists(cls, measure: str) -> str:
        return _check_measure(measure)

    @field_validator("reported")
    @classmethod
    def _reported_exist(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_check_measure(measure) for measure in measures)

    @model_validator(mode="after")
    def _members_are_distinct(self) -> Self:
        names = list(self.reduction.task_names())
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"member '{doubled[0]}' stands in the aggregate twice; a task counts once")
        return self

    @model_validator(mode="after")
    def _reductions_beside_have_names(self) -> Self:
        names = [reduction.name for reduction in self.beside]
        if "" in names or len(set(names)) < len(names):
            raise ValueError("each reduction in beside needs a name of its own, which tables use as its heading")
        return self

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of all member tasks, in order."""
        return tuple(self.reduction.task_names())


class BenchmarkCard(_Frozen):
    """A row of MTEB's benchmark list.

    Attributes:
        name: Name for ``mteb run -b``.
        display_name: For menus.
        aliases: Further names.
        tasks: Member tasks; empty: those of ``aggregate``.
        aggregate: The aggregate whose value ranks it.
        column: Heading of that value in tables; must begin with ``Mean`` (MTEB's table cuts others at capitals).
        groups: Named groups of members for MTEB's ``CustomGrouping``.
    """

    name: str
    benchmark: str = ""
    display_name: str = ""
    aliases: tuple[str, ...] = ()
    description: str
    tasks: tuple[str, ...] = ()
    aggregate: str | None = None
    column: str = "Mean (nDCG@10)"
    groups: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    public: bool = True
    reference: str = ""
    bibtex: str = ""

    @field_validator("column")
    @classmethod
    def _begins_with_mean(cls, column: str) -> str:
        if not column.startswith("Mean"):
            raise ValueError(f"column '{column}' must begin with 'Mean', or MTEB's table cuts it at its capitals")
        return column

    @model_validator(mode="after")
    def _has_members(self) -> Self:
        if not self.tasks and not self.aggregate:
            raise ValueError("a benchmark names its tasks or the aggregate that has them")
        return self


class Card(_Frozen):
    """One file of ``task_metadata/``."""

    name: str
    title: str
    description: str
    need: str = ""
    paper: str = ""
    bibtex: str = ""
    facts: tuple[str, ...] = ()
    tasks: tuple[TaskCard, ...] = ()
    aggregates: tuple[AggregateCard, ...] = ()
    benchmarks: tuple[BenchmarkCard, ...] = ()
    published: tuple[Published, ...] = ()

    @model_validator(mode="after")
    def _published_values_are_of_members(self) -> Self:
        known = {entry.name for entry in (*self.tasks, *self.aggregates)}
        for aggregate in self.aggregates:
            for reduction in (aggregate.reduction, *aggregate.beside):
                known.update(reduction.task_names(), reduction.group_names())
        for value in self.published:
            if value.task not in known:
                raise ValueError(
                    f"published names '{value.task}', which this card lacks{did_you_mean(value.task, known)}"
                )
        return self


def loader_names() -> frozenset[str]:
    """Names of the modules in ``crumb_tasks/loaders`` that load a format, without importing them."""
    return frozenset(path.stem for path in (_PACKAGE / "loaders").glob("*.py") if not path.stem.startswith("_"))


def card_folder() -> Path:
    """Return the folder of the cards: inside an installed package, beside it in a checkout."""
    inside = _PACKAGE / "task_metadata"
    return inside if inside.is_dir() else _PACKAGE.parent / "task_metadata"


def read_card(path: Path) -> Card:
    """Read one card.

    Raises:
        CardError: The file is no TOML, or a field is unknown, missing or wrong; names file, field and remedy.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CardError(f"{path.name}: not a TOML file ({error})") from error
    defaults = table.pop("defaults", {})
    for kind in ("tasks", "aggregates", "benchmarks"):
        if not isinstance(entries := table.get(kind, []), list) or not all(
            isinstance(entry, dict) for entry in entries
        ):
            raise CardError(f"{path.name}: {kind} is a list of tables, each under its own [[{kind}]]")
    if not isinstance(defaults, dict):
        raise CardError(f"{path.name}: defaults is a table, under [defaults]")
    shared = {key: table[key] for key in ("need", "paper", "bibtex") if key in table}
    for kind, inherited in (("tasks", shared | defaults), ("aggregates", shared), ("benchmarks", {})):
        entries = table.get(kind, [])
        table[kind] = [_merge(inherited, entry) | {"benchmark": table.get("name", "")} for entry in entries]
    try:
        tables = _PublishedTables.model_validate({"published_tables": table.get("published_tables", [])})
        cells = [cell for published in tables.published_tables for cell in published.cells()]
        own = {key: value for key, value in table.items() if key != "published_tables"}
        return Card.model_validate(own | {"published": [*table.get("published", []), *cells]})
    except ValidationError as error:
        raise CardError(f"{path.name}: {_first_problem(error, table)}") from error


def _merge(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(inherited)
    for key, value in own.items():
        both_are_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both_are_tables else value
    return merged


def _first_problem(error: ValidationError, table: Mapping[str, Any]) -> str:
    first = error.errors()[0]
    location = list(first["loc"])
    if len(location) >= 2 and isinstance(location[1], int):  # tasks.3.field → tasks 'Name'.field
        entry = table[str(location[0])][location[1]]
        location[:2] = [f"{location[0]} '{entry.get('name', location[1])}'"]
    where = ".".join(map(str, location))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key; remove it or correct its name{_near_key(str(first['loc'][-1]))}"
    return f"{where}: {message}" if where else message


def _near_key(key: str) -> str:
    entries = (Card, TaskCard, AggregateCard, BenchmarkCard, PublishedTable)
    models = (*entries, Source, Prompt, Counts, Dangling, Published, Reduction)
    return did_you_mean(key, {name for model in models for name in model.model_fields})


@cache
def read_cards(folder: Path | None = None) -> tuple[Card, ...]:
    """Read all cards of ``folder`` (by default the package's own), by file name, and check them against each other.

    Raises:
        CardError: A card is wrong, or two tasks or aggregates have names that are equal ignoring case.
    """
    cards = tuple(read_card(path) for path in sorted((folder or card_folder()).glob("*.toml")))
    seen: dict[str, str] = {}
    for card in cards:
        for entry in (*card.tasks, *card.aggregates):
            if (other := seen.get(entry.name.casefold())) is not None:
                raise CardError(
                    f"{card.name}: the name '{entry.name}' is taken by {other}; names differ by more than case"
                )
            seen[entry.name.casefold()] = f"'{entry.name}' of {card.name}"
    tasks = {task.name for card in cards for task in card.tasks}
    aggregates = {aggregate.name for card in cards for aggregate in card.aggregates}
    for card in cards:
        for benchmark in card.benchmarks:
            _check_benchmark(card, benchmark, tasks, aggregates)
        for aggregate in card.aggregates:
            _check_aggregate(card, aggregate, tasks, aggregates)
    return cards


def _check_benchmark(
    card: Card, benchmark: BenchmarkCard, tasks: AbstractSet[str], aggregates: AbstractSet[str]
) -> None:
    what = f"{card.name}: benchmark '{benchmark.name}'"
    if benchmark.aggregate is not None and benchmark.aggregate not in aggregates:
        near = did_you_mean(benchmark.aggregate, aggregates)
        raise CardError(f"{what} names the aggregate '{benchmark.aggregate}', which no card has{near}")
    for task in benchmark.tasks:
        _check_member(f"{what} names the task", task, tasks | aggregates)


def _check_aggregate(
    card: Card, aggregate: AggregateCard, tasks: AbstractSet[str], aggregates: AbstractSet[str]
) -> None:
    what = f"{card.name}: aggregate '{aggregate.name}'"
    for member in aggregate.task_names:
        if member in aggregates:
            raise CardError(f"{what} has the aggregate '{member}' as a member; nest a reduction instead")
        _check_member(f"{what} has the member", member, tasks)
    for refused in aggregate.refused:
        if refused.task not in aggregate.task_names:
            near = did_you_mean(refused.task, aggregate.task_names)
            raise CardError(f"{what} refuses a result of '{refused.task}', which is no member of it{near}")


def _check_member(what: str, name: str, own: AbstractSet[str]) -> None:
    """Refuse a misspelt task of ours. Another name may be a task of MTEB's, which only registration can tell."""
    folded = [task.casefold() for task in own]
    if name not in own and difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_MISSPELT):
        raise CardError(f"{what} '{name}', which no card has{did_you_mean(name, own, most=1)}")


def iter_tasks(cards: Sequence[Card] | None = None) -> Iterator[TaskCard]:
    """Yield the task cards of ``cards`` (by default all), in order."""
    for card in cards if cards is not None else read_cards():
        yield from card.tasks


def find_task(name: str) -> TaskCard:
    """Return the task card called ``name``.

    Raises:
        UsageError: No card has such a task; the message names near ones.
    """
    by_name = {task.name: task for task in iter_tasks()}
    if name not in by_name:
        raise UsageError(f"crumb_tasks has no task '{name}'{did_you_mean(name, by_name)} (crumb-tasks list shows all)")
    return by_name[name]


def find_aggregate(name: str) -> AggregateCard | None:
    """Return the aggregate card called ``name``, or ``None``."""
    return next((entry for card in read_cards() for entry in card.aggregates if entry.name == name), None)


def find_benchmark(name: str) -> BenchmarkCard | None:
    """Return the benchmark card called ``name`` or with that alias, or ``None``."""
    return next(
        (entry for card in read_cards() for entry in card.benchmarks if name in (entry.name, *entry.aliases)), None
    )
