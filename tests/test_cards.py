from __future__ import annotations

from pathlib import Path

import pytest

from crumb_tasks.cards import (
    Card,
    card_folder,
    find_aggregate,
    find_benchmark,
    find_task,
    iter_tasks,
    read_card,
    read_cards,
)
from crumb_tasks.errors import CardError, UsageError
from crumb_tasks.measures import parse_measure

HEAD = """
name = "tiny"
title = "Tiny"
description = "A tiny benchmark."
paper = "https://example.org"

[defaults]
loader = "beir"
main_measure = "nDCG@10"
source = { hub = "org/tiny", revision = "abc" }
splits = { test = "test", validation = "dev" }
dangling = { documents = 2 }
"""
TASK = """
[[tasks]]
name = "TinyA"
description = "A."

[[tasks]]
name = "TinyB"
description = "B."
"""
AGGREGATE = """
[[aggregates]]
name = "Tiny"
description = "Both."
reduction = { mean = "geometric", members = ["TinyA", "TinyB"] }
"""
BENCHMARK = """
[[benchmarks]]
name = "TINY"
description = "Both."
aggregate = "Tiny"
"""
PUBLISHED = """[[published]]
task = "TinyC"
system = "s"
measure = "RR"
value = 0.5
source = "t"
[[aggregates]]"""
WHOLE = HEAD + TASK + AGGREGATE + BENCHMARK


def write(folder: Path, text: str, name: str = "tiny.toml") -> Path:
    """Write a card and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    """Return what reading the folder with this card says."""
    write(folder, text)
    with pytest.raises(CardError) as caught:
        read_cards(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(("tiny.toml: ", "tiny: "))
    return message


def test_tasks_inherit_defaults_key_by_key(tmp_path: Path) -> None:
    """A task's own keys win, tables are merged, and the benchmark's facts reach every entry."""
    own = TASK.replace('description = "A."', 'description = "A."\nmain_measure = "R@100"\ndangling = { queries = 1 }')
    card = read_card(write(tmp_path, HEAD + own + AGGREGATE + BENCHMARK))
    first, second = card.tasks

    assert (first.main_measure, second.main_measure) == ("R@100", "nDCG@10")
    assert (first.dangling.queries, first.dangling.documents, second.dangling.queries) == (1, 2, 0)
    assert first.paper == second.paper == "https://example.org"
    assert first.benchmark == card.aggregates[0].benchmark == "tiny"
    assert first.default_split == "test"
    assert first.upstream_split("validation") == "dev"


def test_measures_are_stored_under_their_canonical_name(tmp_path: Path) -> None:
    """MRR@10 and RR@10 are one measure, so results have one column."""
    own = TASK.replace('description = "A."', 'description = "A."\nmain_measure = "MRR@10"\nmeasures = ["NDCG@5"]')

    task = read_card(write(tmp_path, HEAD + own)).tasks[0]

    assert (task.main_measure, task.measures) == ("RR@10", ("nDCG@5",))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('main_measure = "nDCG@10"', 'main_measure = "recall@100"', "recall_at_100"),
        ('main_measure = "nDCG@10"', 'measures = ["nDCG"]\nmain_measure = "ndgc@10"', "did you mean 'nDCG'"),
        ('loader = "beir"', 'loader = "bier"', "did you mean 'beir'"),
        ("splits = {", "split = {", "unknown key; remove it or correct its name; did you mean 'split"),
        (
            "validation = ",
            'validatoin = "dev" }\nexpected = { validation = { queries = 1 } }\noptions = { x = ',
            "splits lacks",
        ),
        ("splits = {", "splits = {}\noptions = {", "splits is empty"),
        ('"TinyA"\n', '"Tiny A"\n', "only letters, digits and dots"),
        ('"TinyA"\n', '"TinyASample"\n', "have 'Sample' in their name"),
        ('name = "TinyA"\n', 'name = "TinyASample"\nsample = true\n', "a sample is not public"),
        ('name = "TinyA"\n', 'name = "tinyb"\n', "names differ by more than case"),
        ('members = ["TinyA", "TinyB"]', 'members = ["TinyA", "TinyBB"]', "did you mean 'TinyB'"),
        ('members = ["TinyA", "TinyB"]', 'members = ["TinyA", "tinyb"]', "did you mean 'TinyB'"),
        ('members = ["TinyA", "TinyB"]', 'members = ["TinyA", "TinyA"]', "stands in the aggregate twice"),
        ('members = ["TinyA", "TinyB"]', 'members = ["TinyA", "Tiny"]', "nest a reduction instead"),
        ('members = ["TinyA", "TinyB"]', "members = []", "at least 1 item"),
        ('mean = "geometric"', 'mean = "harmonic"', "'arithmetic' or 'geometric'"),
        ('aggregate = "Tiny"', 'aggregate = "Tinny"', "did you mean 'Tiny'"),
        ('aggregate = "Tiny"', 'tasks = ["TinyAA"]', "did you mean 'TinyA'"),
        ('aggregate = "Tiny"', 'groups = { x = ["TinyA"] }', "names its tasks or the aggregate"),
        ('aggregate = "Tiny"', 'aggregate = "Tiny"\ncolumn = "nDCG@10"', "must begin with 'Mean'"),
        (', revision = "abc"', "", "needs a pinned revision"),
        ('hub = "org/tiny", revision = "abc"', 'folder = "x"', "a source needs one of hub, github, sample, path"),
        ('description = "A."', "description = 3", "valid string"),
        ("[[tasks]]", "[tasks]", "tasks is a list of tables|not a TOML file"),
        ("[defaults]", "[defaults", "not a TOML file"),
        (
            "[[aggregates]]",
            PUBLISHED,
            "published names 'TinyC', which this card lacks; did you mean",
        ),
        (
            "reduction = { mean",
            'refused = [{ task = "TinyC", revision = "r", reason = "x" }]\nreduction = { mean',
            "refuses a result of 'TinyC', which is no member of it",
        ),
    ],
)
def test_a_wrong_card_is_one_line_with_the_remedy(tmp_path: Path, old: str, new: str, said: str) -> None:
    """R15 and its kind: a wrong measure, split, loader, member or key is an error when cards are read."""
    text = WHOLE.replace(old, new, 1)
    assert text != WHOLE

    message = refused(tmp_path, text)

    assert any(part in message for part in said.split("|")), message


def test_the_message_names_the_task_not_its_number(tmp_path: Path) -> None:
    """A person looks for a name in the file."""
    message = refused(tmp_path, WHOLE.replace('description = "B."', 'description = "B."\ndepth = 0'))

    assert message.startswith("tiny.toml: tasks 'TinyB'.depth: ")


def test_names_are_unique_over_all_cards(tmp_path: Path) -> None:
    """Two files cannot define the same task; the message names both."""
    write(tmp_path, WHOLE, "a.toml")
    write(tmp_path, WHOLE.replace('name = "tiny"', 'name = "other"'), "b.toml")

    with pytest.raises(CardError, match="other: the name 'TinyA' is taken by 'TinyA' of tiny"):
        read_cards(tmp_path)


def test_tasks_of_mteb_may_be_members(tmp_path: Path) -> None:
    """`list` does not import mteb: a name unlike ours may be one of its tasks, which registration checks."""
    write(tmp_path, WHOLE.replace('members = ["TinyA", "TinyB"]', 'members = ["TinyA", "HellaSwag"]'))

    assert read_cards(tmp_path)[0].aggregates[0].task_names == ("TinyA", "HellaSwag")


def test_a_card_is_frozen(tmp_path: Path) -> None:
    """Nothing at run time can change a rule that results depend on."""
    task = read_card(write(tmp_path, WHOLE)).tasks[0]

    with pytest.raises(ValueError, match="frozen"):
        task.relevant_from = 2  # type: ignore[misc]


def test_an_unknown_split_lists_those_there_are(tmp_path: Path) -> None:
    """R37's kind: splits have names, and a wrong one is a question, not another split."""
    task = read_card(write(tmp_path, WHOLE)).tasks[0]

    with pytest.raises(UsageError, match="TinyA has no split 'validatoin'; it has: test, validation; did you mean"):
        task.upstream_split("validatoin")


def test_the_cards_of_this_package_read() -> None:
    """Every card in the repository is right, each name finds its entry, and each measure is a measure."""
    cards = read_cards()

    assert cards
    assert card_folder().is_dir()
    for card in cards:
        assert isinstance(card, Card)
        for task in card.tasks:
            assert find_task(task.name) is task
            assert parse_measure(task.main_measure).name == task.main_measure
        for aggregate in card.aggregates:
            assert find_aggregate(aggregate.name) is aggregate
        for benchmark in card.benchmarks:
            assert all(find_benchmark(name) is benchmark for name in (benchmark.name, *benchmark.aliases))
    assert len(list(iter_tasks())) == sum(len(card.tasks) for card in cards)


def test_an_unknown_task_names_near_ones() -> None:
    """A typo on the command line is one line with a suggestion."""
    name = next(iter_tasks()).name

    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        find_task(name.lower())
    assert find_aggregate("Nothing") is None
    assert find_benchmark("Nothing") is None
