"""The report: files read one by one, aggregates computed again, conditions and splits kept apart."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crumb_tasks.errors import UsageError
from crumb_tasks.report import (
    RENDERERS,
    Ranking,
    find_aggregate_of,
    rank,
    ranked_benchmarks,
    read_results,
    tasks_of,
    tasks_with_subsets,
)

NAME = "RAR-b (multiple choice)"
TASKS = tasks_of(find_aggregate_of(NAME))
REVISION = "0053f8cee15fbc02323214961d95717a1a5eef71"
EVEN = dict.fromkeys(TASKS, 0.25)


def content(task: str, value: Any, *, split: str = "test", **changes: Any) -> dict[str, Any]:
    """Return a result of MTEB in its own form."""
    scores = {"accuracy": value, "accuracy_argmax": value, "main_score": value, "hf_subset": "default", "languages": []}
    known = {"dataset_revision": REVISION, "task_name": task, "mteb_version": "2.26.24", "scores": {split: [scores]}}
    return known | changes


def write(
    root: Path,
    values: Mapping[str, Any],
    model: str = "org/model",
    experiment: Mapping[str, str] | None = None,
    **meta: Any,
) -> Path:
    """Write results where MTEB's cache has them and return their folder."""
    folder = root / "results" / model.replace("/", "__") / "rev1"
    if experiment:
        folder = folder / "experiments" / "__".join(f"{key}_{value}" for key, value in experiment.items())
    folder.mkdir(parents=True, exist_ok=True)
    stored = {"name": model, "revision": "rev1", "experiment_kwargs": experiment, **meta}
    (folder / "model_meta.json").write_text(json.dumps(stored), encoding="utf-8")
    for task, value in values.items():
        text = value if isinstance(value, str) else json.dumps(content(task, value))
        (folder / f"{task}.json").write_text(text, encoding="utf-8")
    return folder


def ranked(root: Path, name: str = NAME, split: str | None = None) -> Ranking:
    """Return the ranking of what lies in ``root``."""
    return rank(name, read_results(root, tasks_of(find_aggregate_of(name))), split)


def rows_of_csv(ranking: Ranking) -> list[dict[str, str]]:
    """Return the CSV form, read again."""
    return list(csv.DictReader(io.StringIO(RENDERERS[".csv"]([ranking], ()))))


def test_aggregate_is_computed_from_the_members(tmp_path: Path) -> None:
    """The value is the geometric mean of six accuracies; what a stored aggregate says is not read."""
    write(tmp_path, {**EVEN, "RARbMCRPIQA": 0.16, "RARbMCR6": 0.99})
    (row,) = ranked(tmp_path).rows

    assert row.value == pytest.approx((0.25**5 * 0.16) ** (1 / 6))
    assert row.reported["accuracy_argmax"] == row.value
    assert (row.rank, row.n_members, row.problem) == (1, 6, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ('{"task_name": "RARbMCRPIQA", "scores": {"test"', "it is not JSON, or cut short"),
        ("[1, 2]", "it is no JSON object"),
        ('{"a": 1}', "it names no task"),
        ('{"task_name": "RARbMCRPIQA"}', "it has no scores"),
        ('{"task_name": "RARbMCRPIQA", "scores": {"test": []}}', "split 'test' has no scores"),
        ('{"task_name": "HellaSwag", "scores": {"test": [{"accuracy": 1}]}}', "it holds a result of 'HellaSwag'"),
        (
            '{"task_name": "RARbMCRPIQA", "scores": {"test": [{"hf_subset": "de"}, {"hf_subset": "en"}]}}',
            "split 'test' has 2 subsets, of which none is the default",
        ),
    ],
)
def test_one_broken_file_costs_one_member(tmp_path: Path, text: str, reason: str) -> None:
    """A file that cannot be read is named with the reason; its neighbours and other models count."""
    write(tmp_path, EVEN, "org/whole")
    write(tmp_path, EVEN | {"RARbMCRPIQA": text}, "org/broken")
    results = read_results(tmp_path, TASKS)
    whole, broken = rank(NAME, results).rows

    (skipped,) = results.skipped
    assert skipped.path == "results/org__broken/rev1/RARbMCRPIQA.json"
    assert skipped.reason.startswith(reason)
    assert (whole.system.model, whole.rank, broken.value, broken.rank) == ("org/whole", 1, None, None)
    assert "5/6 members have a value; missing: 'RARbMCRPIQA'" in broken.problem


def test_file_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    """Bytes of another encoding are one file's problem."""
    folder = write(tmp_path, EVEN)
    (folder / "RARbMCRPIQA.json").write_bytes(b'{"task_name": "\xff"}')

    assert [entry.reason for entry in read_results(tmp_path, TASKS).skipped] == ["it is not UTF-8"]


def test_not_a_number_is_a_missing_value(tmp_path: Path) -> None:
    """MTEB writes NaN into ordinary results; as a member's value it is missing, elsewhere it is nothing."""
    odd = json.dumps(content("RARbMCRPIQA", 0.25)).replace('"languages"', '"nauc_map_at_1_max": NaN, "languages"')
    missing = json.dumps(content("RARbMCRPIQA", math.nan))
    write(tmp_path, EVEN | {"RARbMCRPIQA": odd}, "org/odd")
    write(tmp_path, EVEN | {"RARbMCRPIQA": missing}, "org/missing")
    odd_row, missing_row = ranked(tmp_path).rows

    assert odd_row.value == pytest.approx(0.25)
    assert (missing_row.value, missing_row.value_by_member["RARbMCRPIQA"]) == (None, None)
    assert "the result of 'RARbMCRPIQA' has no number there (NaN" in missing_row.problem


def test_results_of_old_versions_are_read(tmp_path: Path) -> None:
    """Until mteb 1.11 splits stood at the top; a byte order mark and a missing revision do no harm."""
    name = "RAR-b (geometric)"
    members = tasks_of(find_aggregate_of(name))
    folder = write(tmp_path, {})
    for task in members:
        old = {"dataset_revision": None, "mteb_dataset_name": task, "mteb_version": "1.7.0"}
        text = json.dumps(old | {"test": {"ndcg_at_10": 0.5, "recall_at_10": 0.75, "evaluation_time": 1.5}})
        (folder / f"{task}.json").write_text(f"\ufeff{text}", encoding="utf-8")
    ranking = ranked(tmp_path, name)

    assert ranking.rows[0].value == pytest.approx(0.5)
    assert ranking.rows[0].reported == {"R@10": pytest.approx(0.75)}
    assert ranking.rows[0].beside == {"arithmetic_mean_17": 0.5, "arithmetic_mean_15": 0.5}
    assert set(ranking.data_revisions["HellaSwag"]) == {"unknown"}


def test_mean_of_seventeen_is_null_without_context_tasks(tmp_path: Path) -> None:
    """A mean beside the aggregate may have members that the aggregate lacks; without them it has no value."""
    name = "RAR-b (geometric)"
    values = {task: json.dumps(_retrieval(task)) for task in tasks_of(find_aggregate_of(name)) if "Context" not in task}
    write(tmp_path, values)
    ranking = ranked(tmp_path, name)

    assert ranking.rows[0].value == pytest.approx(0.5)
    assert ranking.rows[0].beside == {"arithmetic_mean_17": None, "arithmetic_mean_15": 0.5}
    assert json.loads(RENDERERS[".json"]([ranking], ()))["rankings"][0]["models"][0]["arithmetic_mean_17"] is None


def test_broken_winogrande_costs_the_rank_and_says_why(tmp_path: Path) -> None:
    """A result on the upload that mteb 2.0 read does not enter, and the reason stands in the table."""
    name = "RAR-b (geometric)"
    values = {task: json.dumps(_retrieval(task)) for task in tasks_of(find_aggregate_of(name))}
    broken = _retrieval("WinoGrande") | {"dataset_revision": "770abbd7f77affc005f9734996e795925cbc0f65"}
    write(tmp_path, values | {"WinoGrande": json.dumps(broken)})
    ranking = ranked(tmp_path, name)

    assert ranking.rows[0].value is None
    assert ranking.rows[0].beside["arithmetic_mean_17"] is None
    assert "the result of 'WinoGrande' is on revision 770abbd7" in ranking.rows[0].problem
    assert "another dataset" in RENDERERS[".md"]([ranking], ())


def _retrieval(task: str) -> dict[str, Any]:
    scores = {"ndcg_at_10": 0.5, "recall_at_10": 0.75, "main_score": 0.5, "hf_subset": "default"}
    return {"dataset_revision": "any", "task_name": task, "mteb_version": "2.26.24", "scores": {"test": [scores]}}


def test_stale_data_of_our_tasks_do_not_enter(tmp_path: Path) -> None:
    """A result on another revision than the card's is not mixed with the others."""
    stale = json.dumps(content("RARbMCRPIQA", 0.9, dataset_revision="older"))
    write(tmp_path, EVEN | {"RARbMCRPIQA": stale})
    (row,) = ranked(tmp_path).rows

    assert row.value is None
    assert f"on revision older but the task now reads {REVISION}" in row.problem


def test_splits_are_never_mixed(tmp_path: Path) -> None:
    """A member that has only another split is missing; an unknown split is refused."""
    other = json.dumps(content("RARbMCRPIQA", 0.9, split="validation"))
    write(tmp_path, EVEN | {"RARbMCRPIQA": other})

    assert ranked(tmp_path).rows[0].value is None
    with pytest.raises(UsageError, match="RARbMCR6 has no split 'validation'; it has: test"):
        ranked(tmp_path, split="validation")


def test_incomplete_model_is_below_complete_ones(tmp_path: Path) -> None:
    """Five easy members give no mean and no rank, however high they are."""
    write(tmp_path, dict.fromkeys(TASKS[:5], 0.99), "org/five")
    write(tmp_path, EVEN, "org/six")
    ranking = ranked(tmp_path)

    assert [(row.system.model, row.rank, row.n_members) for row in ranking.rows] == [
        ("org/six", 1, 6),
        ("org/five", None, 5),
    ]
    assert "| org/five | native | 5/6 |" in RENDERERS[".md"]([ranking], ())


def test_equal_values_share_a_rank(tmp_path: Path) -> None:
    """Two models with one value are both first, the next is third."""
    for model, value in {"org/b": 0.5, "org/a": 0.5, "org/c": 0.25}.items():
        write(tmp_path, dict.fromkeys(TASKS, value), model)

    assert [(row.system.model, row.rank) for row in ranked(tmp_path).rows] == [("org/a", 1), ("org/b", 1), ("org/c", 3)]


def test_conditions_are_rows_of_their_own(tmp_path: Path) -> None:
    """Results with another instruction never stand under the model's plain name, nor beside the paper's number."""
    model = "sentence-transformers/all-MiniLM-L6-v2"
    write(tmp_path, EVEN, model)
    write(tmp_path, dict.fromkeys(TASKS, 0.5), model, {"instructions": "prepended"})
    with_it, native = ranked(tmp_path).rows

    assert (with_it.system.condition, native.system.condition) == ("instructions prepended", "native")
    assert with_it.published is None
    assert native.published is not None
    assert native.published.value == pytest.approx(0.4057)


@pytest.mark.parametrize(
    ("uses_instructions", "none_was_run", "found"),
    [
        (False, False, [("instructions prepended", "native")]),
        (True, True, [("native", "instructions none"), ("instructions prepended", "instructions none")]),
        (True, False, []),
        (None, False, []),
    ],
)
def test_gain_compares_with_what_saw_no_instruction(
    tmp_path: Path, *, uses_instructions: bool | None, none_was_run: bool, found: list[tuple[str, str]]
) -> None:
    """The gain is over the condition none, or over MTEB's own setting where the model ignores instructions in it."""
    write(tmp_path, dict.fromkeys(TASKS, 0.5), use_instructions=uses_instructions)
    write(tmp_path, EVEN, experiment={"instructions": "prepended"})
    if none_was_run:
        write(tmp_path, EVEN, experiment={"instructions": "none"})
    gains = ranked(tmp_path).gains

    assert [(gain.with_instruction.condition, gain.without.condition) for gain in gains] == found
    if found == [("instructions prepended", "native")]:
        assert gains[0].value == pytest.approx(math.log2(1.25) - math.log2(1.5))


def test_gain_needs_all_else_equal(tmp_path: Path) -> None:
    """A model at another length is no counterpart."""
    write(tmp_path, EVEN, experiment={"instructions": "none"})
    write(tmp_path, EVEN, experiment={"instructions": "prepended", "max_seq_length": "512"})

    assert ranked(tmp_path).gains == ()


def test_records_of_our_own_are_no_results(tmp_path: Path) -> None:
    """`crumb-tasks run` keeps records under the tasks' names beside the results; they are not read."""
    records = write(tmp_path, EVEN) / "crumb_tasks"
    records.mkdir()
    (records / "RARbMCRPIQA.json").write_text('{"task": "RARbMCRPIQA"}', encoding="utf-8")

    assert read_results(tmp_path, TASKS).skipped == ()


def test_second_result_of_one_system_is_said(tmp_path: Path) -> None:
    """Of two differing results on one task the first by path counts; an equal copy is no news."""
    write(tmp_path / "a", EVEN)
    write(tmp_path / "b", EVEN | {"RARbMCRPIQA": 0.9})
    results = read_results(tmp_path, TASKS)

    assert [entry.path for entry in results.skipped] == ["b/results/org__model/rev1/RARbMCRPIQA.json"]
    assert rank(NAME, results).rows[0].value == pytest.approx(0.25)


def test_folder_names_stand_in_for_a_missing_meta_file(tmp_path: Path) -> None:
    """Without model_meta.json, or with a broken one, the folders say whose results these are."""
    folder = write(tmp_path, EVEN, experiment={"instructions": "none"})
    (folder / "model_meta.json").unlink()
    other = write(tmp_path, EVEN, "org/other")
    (other / "model_meta.json").write_text("{", encoding="utf-8")

    assert {(row.system.model, row.system.revision, row.system.condition) for row in ranked(tmp_path).rows} == {
        ("org/model", "rev1", "experiment instructions_none"),
        ("org/other", "rev1", "native"),
    }


def test_json_is_strict_and_holds_everything(tmp_path: Path) -> None:
    """Members, the mean under its name, published rows, and what was left out, without NaN."""
    write(tmp_path, EVEN, "sentence-transformers/all-MiniLM-L6-v2")
    write(tmp_path, EVEN | {"RARbMCRPIQA": ""}, "org/Zoë")
    results = read_results(tmp_path, TASKS)
    text = RENDERERS[".json"]([rank(NAME, results)], results.skipped)
    report = json.loads(text, parse_constant=pytest.fail)
    (ranking,) = report["rankings"]
    first, last = ranking["models"]

    assert (first["model"], first["geometric_mean"], first["published"]) == (
        "sentence-transformers/all-MiniLM-L6-v2",
        pytest.approx(0.25),
        0.4057,
    )
    assert first["members"] == EVEN
    assert (last["model"], last["geometric_mean"], last["members"]["RARbMCRPIQA"]) == ("org/Zoë", None, None)
    assert "Zoë" in text
    assert len(ranking["published"]) == 44
    assert report["skipped"] == [{"path": "results/org__Zoë/rev1/RARbMCRPIQA.json", "reason": "it is empty"}]


def test_csv_has_one_line_per_model(tmp_path: Path) -> None:
    """Full precision, empty cells for what does not exist; several rankings do not fit into one table."""
    write(tmp_path, EVEN)
    write(tmp_path, {}, "org/nothing")
    write(tmp_path, dict.fromkeys(TASKS[:2], 1 / 3), "org/two")
    ranking = ranked(tmp_path)
    first, second = rows_of_csv(ranking)

    assert (first["model"], float(first["geometric_mean"]), first["rank"]) == ("org/model", pytest.approx(0.25), "1")
    assert (second["geometric_mean"], second["RARbMCRSIQA"], float(second[TASKS[0]])) == ("", "", 1 / 3)
    with pytest.raises(UsageError, match="choose one with --benchmark"):
        RENDERERS[".csv"]([ranking, ranking], ())


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    """A model's name is text in Markdown, whatever it holds."""
    write(tmp_path, EVEN, "org/<script>|*x*")
    page = RENDERERS[".md"]([ranked(tmp_path)], ())

    assert r"org/\<script\>\|\*x\*" in page
    assert "<script>" not in page


def test_samples_say_so_and_stand_beside_no_published_number(tmp_path: Path) -> None:
    """A ranking of samples is marked in every form and has no published rows."""
    sample = find_aggregate_of("CRUMBSample")
    write(tmp_path, {task: json.dumps(_retrieval(task)) for task in tasks_of(sample)})
    ranking = ranked(tmp_path, "CRUMBSample")

    assert ranking.rows[0].value == pytest.approx(0.5)
    assert ranking.published == ()
    assert json.loads(RENDERERS[".json"]([ranking], ()))["rankings"][0]["sample"] is True
    assert "These are samples" in RENDERERS[".md"]([ranking], ())


def test_all_ranked_benchmarks_can_be_asked_for() -> None:
    """Every benchmark that an aggregate ranks has one, by its name or the aggregate's."""
    names = ranked_benchmarks()

    assert {"RAR-b (geometric)", NAME} <= set(names)
    assert all(find_aggregate_of(name).task_names for name in names)
    assert find_aggregate_of("RARbMCR").name == "RARbMCR"
    with pytest.raises(UsageError, match="no benchmark or aggregate 'RAR-b'; did you mean"):
        find_aggregate_of("RAR-b")


def test_split_and_subsets_of_a_member_are_those_of_the_card(tmp_path: Path) -> None:
    """A member on a split of its own, and one subset of two, are never taken for each other."""

    def scores(**value_by_subset: float) -> list[dict[str, object]]:
        return [{"hf_subset": name, "ndcg_at_10": value} for name, value in value_by_subset.items()]

    task = "BrowseCompPlusRetrieval"
    both = {"task_name": task, "scores": {"test": scores(gold_and_evidence=0.25, gold_only=0.75)}}
    half = {"task_name": task, "scores": {"test": scores(gold_only=0.75)}}
    write(tmp_path, {task: json.dumps(both)}, "org/both")
    write(tmp_path, {task: json.dumps(half)}, "org/half")
    results = read_results(tmp_path, {task}, tasks_with_subsets(find_aggregate_of("BrowseCompPlusGold")))
    values = {
        name: [row.value for row in rank(name, results).rows]
        for name in ("BrowseCompPlusGold", "BrowseCompPlusEvidence")
    }

    assert values == {"BrowseCompPlusGold": [0.75, 0.75], "BrowseCompPlusEvidence": [0.25, None]}
    marco = {"task_name": "MSMARCO", "scores": {"test": scores(default=0.5), "dev": scores(default=0.25)}}
    write(tmp_path, {"MSMARCO": json.dumps(marco)}, "org/marco")
    (row,) = rank("BEIR19", read_results(tmp_path, {"MSMARCO"})).rows
    assert row.value_by_member["MSMARCO"] == 0.25
