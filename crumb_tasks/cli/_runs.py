"""What `score` and `compare` share: which task a run file belongs to, its collection, and reading it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crumb_tasks.cards import TaskCard, find_aggregate, iter_tasks, read_cards
from crumb_tasks.cli._text import add_data_option, visible
from crumb_tasks.collection import Collection
from crumb_tasks.errors import RunError, RunFileError, UsageError, did_you_mean
from crumb_tasks.files import output, printable
from crumb_tasks.runfiles import FORMATS, RunFile, read_run_file
from crumb_tasks.runs import Run
from crumb_tasks.scoring import Scores, score
from crumb_tasks.scoring.matching import MaxPassage, Rules
from crumb_tasks.scoring.wording import no_max_passage

_UPSTREAM = {
    "CRUMBClinicalTrial": "clinical_trial",
    "CRUMBCodeRetrieval": "code_retrieval",
    "CRUMBLegalQA": "legal_qa",
    "CRUMBPaperRetrieval": "paper_retrieval",
    "CRUMBSetOperationEntityRetrieval": "set_operation_entity_retrieval",
    "CRUMBStackExchange": "stack_exchange",
    "CRUMBTheoremRetrieval": "theorem_retrieval",
    "CRUMBTipOfTheTongue": "tip_of_the_tongue",
}
"""What CRUMB's evaluator calls its tasks."""
_PREDICTIONS = re.compile(r"(?P<task>.+)_predictions\.json(\.gz|\.zst)?")


@dataclass(frozen=True)
class Target:
    """What a run is scored on.

    Attributes:
        name: Task name, or the file of judgements.
        card: The task's card; ``None`` for MTEB's own tasks and for a file of judgements.
        qrels: The file of judgements.
        guessed: How the task was guessed, empty when it was named.
    """

    name: str
    card: TaskCard | None = None
    qrels: str | None = None
    guessed: str = ""


@dataclass
class Collections:
    """Collections that were loaded, so that several runs share one."""

    subset: str | None = None
    _loaded: dict[tuple[str, str | None], Collection] = field(default_factory=dict)

    def load(self, target: Target, split: str | None) -> Collection:
        """Return the collection of ``target``, loading it once."""
        key = (target.name, split)
        if key not in self._loaded:
            self._loaded[key] = self._load(target, split)
        return self._loaded[key]

    def _load(self, target: Target, split: str | None) -> Collection:
        if target.qrels is not None:
            from crumb_tasks.runfiles.qrels import collection_of

            if split is not None:
                raise UsageError("--qrels names the judgements themselves; leave --split out")
            return collection_of(target.qrels)
        if target.card is None:
            from crumb_tasks.cli._mteb import load_mteb_collection

            return load_mteb_collection(target.name, split, self.subset)
        from crumb_tasks.loaders import load_collection

        return load_collection(target.card, split)


@dataclass(frozen=True, eq=False)
class Scored:
    """One run file and its scores."""

    file: RunFile
    target: Target
    collection: Collection
    scores: Scores
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file's path as it can be printed."""
        return printable(self.file.path)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what runs are and what they are scored on."""
    parser.add_argument(
        "--task",
        metavar="NAME",
        help="task of this package or of MTEB (default: guessed from each file's name, as CRUMB's evaluator does)",
    )
    parser.add_argument("--split", metavar="NAME", help="split of the task (default: the task's first, mostly test)")
    parser.add_argument(
        "--qrels",
        metavar="FILE",
        help="score on these judgements instead of a task: TREC qrels, TSV with a header, JSON",
    )
    parser.add_argument(
        "--max-passage",
        choices=("auto", "on", "off"),
        default="auto",
        help="let a document stand where its best passage stands (default: auto, as the task says)",
    )
    parser.add_argument(
        "--depth",
        metavar="N",
        type=int,
        help="how deep the search went, where rankings are shorter because no more was found (default: as deep as the "
        "longest ranking); a measure that looks deeper has no value",
    )
    add_format_options(parser)
    add_data_option(parser)


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a run file is read."""
    parser.add_argument(
        "--format",
        choices=("auto", *FORMATS),
        default="auto",
        help="format of the run files (default: auto, told by content)",
    )
    parser.add_argument("--subset", metavar="NAME", help="subset in MTEB's predictions that hold several")
    parser.add_argument("--tag", metavar="NAME", help="system to read from a TREC file that holds several")


def refuse_shared_input(runs: Sequence[str], qrels: str | None) -> None:
    """Refuse to read standard input twice.

    Raises:
        UsageError: More than one file is ``-``.
    """
    if [*runs, qrels].count("-") > 1:
        raise UsageError("standard input can be read once; only one file may be -")


def find_target(path: str, task: str | None, qrels: str | None) -> Target:
    """Return what the run ``path`` is scored on.

    Raises:
        UsageError: The task is unknown, an aggregate, or cannot be guessed.
    """
    if qrels is not None:
        if task is not None:
            raise UsageError("--qrels takes the place of a task; leave --task out")
        return Target(qrels, qrels=qrels)
    if task is not None:
        return _named(task)
    if path == "-":
        raise UsageError("standard input has no name to guess the task from; name it with --task")
    if (guessed := guess_target(Path(path).name)) is not None:
        return guessed
    raise UsageError(f"the name '{Path(path).name}' tells no task; name one with --task, or judgements with --qrels")


def _named(name: str) -> Target:
    own = {card.name: card for card in iter_tasks()}
    if name in own:
        return Target(name, own[name])
    if (aggregate := find_aggregate(name)) is not None:
        members = ", ".join(aggregate.task_names[:3])
        raise UsageError(f"{name} is an aggregate; score a run for each of its members ({members} …)")
    by_folded = {own_name.casefold(): own_name for own_name in own}
    upstream = by_folded.get(f"crumb{name.replace('_', '')}".casefold())
    if upstream is not None:  # clinical_trial, as CRUMB's evaluator calls it
        return Target(upstream, own[upstream])
    from crumb_tasks.cli._mteb import refuse_unknown

    refuse_unknown(name, did_you_mean(name, own))
    return Target(name)


def guess_target(file_name: str) -> Target | None:
    """Return the task that a file's name tells, ``None`` where it tells none.

    Raises:
        UsageError: It is named as MTEB names predictions of a task, and there is no such task.
    """
    match = _PREDICTIONS.fullmatch(file_name)
    if match is not None:
        return replace(_named(match["task"]), guessed="from the file name, as MTEB names predictions")
    for card in sorted(iter_tasks(), key=lambda card: -len(card.name)):
        rest = file_name[len(card.name) :]
        if file_name.startswith(card.name) and not rest[:1].isalnum():
            return Target(card.name, card, guessed="from the file name")
    for card in iter_tasks():
        upstream = _UPSTREAM.get(card.name)
        if upstream and file_name.startswith(upstream):
            return Target(card.name, card, guessed=f"from the file name, which begins with {upstream}")
    return None


def score_file(path: str, args: argparse.Namespace, collections: Collections, measures: Sequence[str] | None) -> Scored:
    """Read one run file and score it.

    Raises:
        RunError: The file cannot be read, or has nothing to do with the collection.
        UsageError: The task, the split or a measure is unknown.
        DataError: The collection cannot be loaded.
    """
    if args.depth is not None and args.depth < 1:
        raise UsageError(f"--depth {args.depth} is no depth; a search goes at least one document deep")
    target = find_target(path, args.task, args.qrels)
    card = target.card
    if args.max_passage == "on" and card is not None and not card.max_passage:
        raise UsageError(no_max_passage(card.name, judges_passages=Rules.of(card).judges_passages))
    file = read_run_file(
        path,
        args.format,
        split=args.split,
        subset=args.subset,
        tag=args.tag,
        **_how_repeats_are_read(args, card),
    )
    notes = [f"task {target.name}, guessed {target.guessed}"] if target.guessed else []
    split = args.split
    if split is None and file.split is not None and card is not None and file.split in card.splits:
        split = file.split
        notes += [f"split '{split}', as the file says"] if split != card.default_split else []
    elif target.card is None and target.qrels is None and file.split is not None:
        split = split or file.split
    collection = collections.load(target, split)
    # with judgements alone the run's own ids are all there is to reduce
    max_passage: MaxPassage = "auto" if args.qrels is not None else args.max_passage
    try:
        _refuse_other_split(file.run, target, collection, collections)
        scores = score(file.run, collection, card, measures, max_passage=max_passage, depth=args.depth or file.depth)
    except RunError as error:
        raise RunFileError(path, None, str(error)) from error
    return Scored(file, target, collection, scores, (*notes, *file.notes, *collection.notes, *scores.notes))


def _how_repeats_are_read(args: argparse.Namespace, card: TaskCard | None) -> dict[str, Any]:
    """Return what becomes of a document that a query holds twice, as passages do that carry its id."""
    if args.max_passage == "on" or (args.max_passage == "auto" and card is not None and card.max_passage):
        return {"repeats": "best"}
    if args.qrels is not None or (card is not None and card.max_passage):
        return {
            "remedy": "keep one, or score with --max-passage on if these are passages that carry their document's id"
        }
    return {}


def _refuse_other_split(run: Run, target: Target, collection: Collection, collections: Collections) -> None:
    """Name the split that a run answers when it answers less than half of its queries here."""
    if target.card is None or _overlap(run, collection) * 2 > len(run):
        return
    for split in target.card.splits:
        if split == collection.split:
            continue
        other = collections.load(target, split)
        if _overlap(run, other) > _overlap(run, collection):
            raise RunError(
                f"{_overlap(run, other)} of {len(run)} queries of the run are of split '{split}' of {target.name}, "
                f"{_overlap(run, collection)} of '{collection.split}'; score it with --split {split}"
            )


def _overlap(run: Run, collection: Collection) -> int:
    return len(set(run.query_ids) & set(collection.graded.query_ids))


def print_notes(path: str, notes: Iterable[str]) -> None:
    """Print notes on stderr."""
    for note in notes:
        print(visible(f"{printable(path)}: {note}"), file=sys.stderr)


def published_values(target: Target, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return what was published for the task in one of the measures ``names``, as references."""
    wanted = set(names)
    values = [value for card in read_cards() for value in card.published if value.task == target.name]
    return [value.model_dump(exclude={"task"}) for value in values if value.measure in wanted]


def write_output(text: str, path: Path | None) -> None:
    """Print ``text``, or write it to ``path``, which is replaced whole or not at all."""
    if path is None:
        sys.stdout.write(text)
        return
    with output(path) as file:
        file.write(text.encode("utf-8"))


def query_texts(collection: Collection) -> dict[str, str]:
    """Return the text of each query; none where the texts are decoded in memory only."""
    if collection.in_memory_only:
        return {}
    ids = collection.queries.column("id").to_pylist()
    return dict(zip(map(str, ids), collection.queries.column("text").to_pylist(), strict=True))
