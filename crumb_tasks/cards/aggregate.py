"""The cards of what is made of tasks: aggregates, which have a value, and benchmarks, which MTEB lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from crumb_tasks.cards.fields import TASK_NAME, Frozen, MeasureName, check_measure
from crumb_tasks.errors import did_you_mean


class Reduction(Frozen):
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


class RefusedRevision(Frozen):
    """Results of a member on a data revision that is known to be wrong."""

    task: str
    revision: str
    reason: str


class ReportColumn(Frozen):
    """A single value of one task that a report's line shows beside the aggregate.

    Attributes:
        name: Heading.
        task: The task, which need not be a member.
        key: The key in its results, such as ``group_std_ndcg_at_10``.
    """

    name: str = Field(min_length=1)
    task: str
    key: str


class Scope(Frozen):
    """What of a task counts, where it has several splits or subsets.

    Attributes:
        split: The one split; empty: the aggregate's own.
        subsets: The subsets, averaged; ``cross-lingual``: those of two languages; empty: all.
    """

    split: str = ""
    subsets: tuple[str, ...] | Literal["cross-lingual"] = ()


class AggregateCard(Frozen):
    """Several tasks' values reduced to one.

    Attributes:
        name: Task name of the aggregate, under the same rules as a task's.
        title: For people.
        description: What it says.
        measure: The members' measure that is reduced; every member must emit it.
        key: MTEB's key of what is reduced, where no measure's notation names it, such as ``p-MRR``.
        keys: Task → its own key, where members report by different measures on one scale; a dot goes into what MTEB
            stores below a key, as in ``og.map_at_1000``.
        scopes: Task → what of it counts, where that is not its default split and all of its subsets.
        reduction: The mean and its members.
        splits: Splits it has a value for; the first is the default.
        refused: Member results that may not enter.
        reported: Other measures whose value under the same reduction a report shows beside it.
        beside: Other reductions of the measure that a report shows beside it, each with a name; they may have members
            that the aggregate lacks.
        columns: Single values of tasks, related ones included, that a report's line shows as well.
        facts: What users should know.
    """

    name: str
    benchmark: str = ""
    title: str = ""
    description: str
    need: str = ""
    measure: MeasureName = "nDCG@10"
    key: str = ""
    keys: Mapping[str, str] = Field(default_factory=dict)
    scopes: Mapping[str, Scope] = Field(default_factory=dict)
    reduction: Reduction
    splits: tuple[str, ...] = ("test",)
    refused: tuple[RefusedRevision, ...] = ()
    reported: tuple[MeasureName, ...] = ()
    beside: tuple[Reduction, ...] = ()
    columns: tuple[ReportColumn, ...] = ()
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
        return check_measure(measure)

    @field_validator("reported")
    @classmethod
    def _reported_exist(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_measure(measure) for measure in measures)

    @model_validator(mode="after")
    def _members_are_distinct(self) -> Self:
        names = list(self.reduction.task_names())
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"member '{doubled[0]}' stands in the aggregate twice; a task counts once")
        for name in (*self.keys, *self.scopes):
            if name not in names:
                raise ValueError(f"keys or scopes name '{name}', which is no member{did_you_mean(name, names)}")
        return self

    @model_validator(mode="after")
    def _reductions_beside_have_names(self) -> Self:
        names = [reduction.name for reduction in self.beside]
        if "" in names or len(set(names)) < len(names):
            raise ValueError("each reduction in beside needs a name of its own, which tables use as its heading")
        return self

    @model_validator(mode="after")
    def _columns_have_names_of_their_own(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError("two columns have one name; each is a heading of its own")
        return self

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of all member tasks, in order."""
        return tuple(self.reduction.task_names())

    @property
    def measured(self) -> str:
        """What is reduced, for people."""
        return self.key or self.measure

    def split_of(self, task: str, split: str) -> str:
        """Return the split of ``task`` that the aggregate's ``split`` is made of."""
        scope = self.scopes.get(task)
        return scope.split if scope is not None and scope.split else split


class BenchmarkCard(Frozen):
    """A row of MTEB's benchmark list.

    Attributes:
        name: Name for ``mteb run -b``.
        display_name: For menus.
        aliases: Further names.
        tasks: Member tasks; empty: those of ``aggregate``.
        aggregate: The aggregate whose value ranks it.
        column: Heading of that value in tables; must begin with ``Mean`` (MTEB's table cuts others at capitals).
        groups: Named groups of members for MTEB's ``CustomGrouping``.
        beside: Further groups, of members that qualify those of ``groups``, as quality does p-MRR.
        overall: Whether a mean over all members says anything; without it the columns of the groups are all there is.
        slice_of: A benchmark of MTEB whose tasks of the ``types`` are the members, as MTEB has them there.
        types: MTEB's task types.
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
    beside: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    overall: bool = True
    slice_of: str = ""
    types: tuple[str, ...] = ()
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
        if not self.tasks and not self.aggregate and not self.slice_of:
            raise ValueError("a benchmark names its tasks or the aggregate that has them")
        if not self.overall and (self.aggregate or not self.groups):
            raise ValueError("a benchmark without an overall mean has groups, and no aggregate that would rank it")
        grouped = (name for names in {**self.groups, **self.beside}.values() for name in names)
        outside = [name for name in grouped if name not in self.tasks]
        if self.tasks and outside:
            raise ValueError(f"a group names '{outside[0]}', which is no member{did_you_mean(outside[0], self.tasks)}")
        return self
