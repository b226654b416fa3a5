"""The report's page: self-contained, escaped, the same numbers as the JSON, and honest about what differs by luck."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sample_runs import MAXP, PLAIN, document_run, passage_run, sample
from standin import ROOT, start

from crumb_tasks import cli
from crumb_tasks.aggregators import reduce_nested
from crumb_tasks.cards import Reduction, find_task
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.comparison import bootstrap_interval, randomisation_test
from crumb_tasks.report import (
    Content,
    QueryValues,
    Results,
    ScoredRun,
    find_aggregate_of,
    rank,
    read_backings,
    read_results,
    to_html,
    view_queries,
    with_runs,
    with_tests,
)
from crumb_tasks.report.apart import interval, p_values, reduce_arrays
from crumb_tasks.report.charts import draw_charts, pareto_front
from crumb_tasks.runfiles import write_run
from crumb_tasks.running.records import Record, file_sha256, run_path
from crumb_tasks.runs import Run
from crumb_tasks.scoring import score

EVIL = "<script>alert('x')</script>"
VOID = {"meta", "br", "wbr", "path", "use", "img", "link"}


class Page(HTMLParser):
    """What a browser would see: tags with their attributes, the text, and tables as rows of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close a tag, the innermost open one."""
        if tag not in VOID:
            assert self.open.pop() == tag, f"{tag} closes what is not open"

    def handle_data(self, data: str) -> None:
        """Keep text, and that of a cell."""
        if self.open and self.open[-1] == "style":
            return
        self.text += data
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


def write_runs(folder: Path, task: str, lifts: dict[str, float], **options: int) -> list[str]:
    """Write for each system a run on a sample task and return the arguments for ``--runs``."""
    arguments = []
    for system, lift in lifts.items():
        path = folder / f"{system}.{task}" / f"{task}.trec"
        path.parent.mkdir(parents=True)
        write_run(Run.from_dict(passage_run(task, lift=lift, **options)), path, "trec")
        arguments.append(f"{system}={path}")
    return arguments


def report(tmp_path: Path, *arguments: str) -> tuple[Page, dict[str, object], str]:
    """Write page and JSON from the same arguments; return both and the page's source."""
    for suffix in ("html", "json"):
        assert cli.main(["report", *arguments, "-o", str(tmp_path / f"report.{suffix}")]) == 0
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    return Page(source), json.loads((tmp_path / "report.json").read_text(encoding="utf-8")), source


def write_result(folder: Path, model: str, task: str, **values: float) -> Path:
    """Write a result file of MTEB's and return it."""
    path = folder / model.replace("/", "__") / "rev" / f"{task}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"hf_subset": "default", "languages": ["eng-Latn"], **values}
    content = {"task_name": task, "dataset_revision": None, "mteb_version": "2.26.24", "scores": {"test": [entry]}}
    path.write_text(json.dumps({**content, "evaluation_time": 2.5}), encoding="utf-8")
    meta = {"name": model, "revision": "rev"}
    (path.parent / "model_meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return path


def test_page_needs_nothing_else(tmp_path: Path) -> None:
    """No script, style sheet, picture or font from anywhere, and a policy that forbids them; links are for people."""
    runs = write_runs(tmp_path, PLAIN, {"good": 0.5, "poor": 0.05})
    page, _, source = report(tmp_path, "--runs", *runs, "--benchmark", PLAIN)

    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    assert page.open == []
    (policy,) = (attrs["content"] for _, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'")
    assert not re.search(r"@import|url\((?!#)|\bsrc=", source)
    assert {attrs["href"] for tag, attrs in page.tags if tag == "a"} == {"https://arxiv.org/abs/2509.07253"}
    assert any(attrs.get("name") == "viewport" for _, attrs in page.tags)


def test_numbers_are_those_of_the_json(tmp_path: Path, shared_data: Path) -> None:
    """Forty models, rank, aggregate, members and other means: page and JSON are one ranking."""
    page, content, _ = report(tmp_path, "--results", str(shared_data / "mteb_results"))
    (ranking,) = content["rankings"]  # type: ignore[misc]

    rows = page.tables[0][1:]
    assert [" ".join(row[1].split()) for row in rows] == [row["model"] for row in ranking["models"]]
    for cells, row in zip(rows, ranking["models"], strict=True):
        shown = [row["geometric_mean"], row["published"], row["recall_at_10_geometric_mean"], row["arithmetic_mean_17"]]
        assert int(cells[0]) == row["rank"]
        assert [cell.split()[0] for cell in cells[2:6]] == [
            "\u2013" if value is None else f"{value:.4f}" for value in shown
        ]
    members = page.tables[1]
    assert members[0][1:] == list(ranking["models"][0]["members"])
    for cells, row in zip(members[1:], ranking["models"], strict=True):
        assert [float(cell) for cell in cells[1:]] == [round(value, 4) for value in row["members"].values()]


def test_text_from_data_is_text() -> None:
    """Markup or a formula in a query, an instruction, a document, an id or a model is shown as it is written."""
    card = find_task(PLAIN)
    ids = {"doc": [f"d{EVIL}", "d2"], "query": [f"q{EVIL}"]}
    collection = Collection(
        name=PLAIN,
        split="test",
        corpus=pa.table({"id": ids["doc"], "title": [f"t{EVIL}", ""], "text": [f"x{EVIL}", "plain"]}),
        queries=pa.table({"id": ids["query"], "text": [f"ask{EVIL}"], "prompt": [f"told{EVIL}"]}),
        qrels={"graded": Qrels.from_dict({ids["query"][0]: {ids["doc"][0]: 1}})},
    )
    run = Run.from_dict({ids["query"][0]: {ids["doc"][0]: 0.5, "d2": 0.25}})
    model = f"$evil_{{{EVIL}}}$"
    entry = ScoredRun(model, "a.trec", card, run, collection, score(run, collection, card))
    results, _ = with_runs(Results({}, ()), {}, [entry])
    ranking = rank(PLAIN, results)
    views = view_queries(card, collection, {model: run}, 3)
    source = to_html(Content([ranking], views={PLAIN: [views]}, notes=[EVIL]))
    page = Page(source)

    assert "script" not in {tag for tag, _ in page.tags}
    for text in (f"ask{EVIL}", f"told{EVIL}", f"t{EVIL}: x{EVIL}", f"d{EVIL}", f"Query q{EVIL}"):
        assert text in page.text
    assert model in page.text


def test_incomplete_systems_have_no_rank(tmp_path: Path) -> None:
    """A missing member is called missing, and the mean of the others appears nowhere."""
    for task in ("AlphaNLI", "HellaSwag"):
        write_result(tmp_path / "results", "me/half", task, ndcg_at_10=0.5, recall_at_100=0.9)
    page, _, _ = report(tmp_path, "--results", str(tmp_path / "results"), "--benchmark", "RARb")

    without_rank, members = page.tables[:2]
    assert without_rank[0] == ["System", "Tasks", "Why"]
    assert without_rank[1][1] == "2 of 15"
    assert "missing: 'PIQA'" in without_rank[1][2]
    assert [cell for cell in members[1][1:] if cell != "missing"] == ["0.5000", "0.5000"]
    assert "Geometric mean of nDCG@10 over 15 tasks" in page.text


def test_samples_stand_beside_no_published_number(tmp_path: Path, shared_data: Path) -> None:
    """Beside RAR-b, whose published rows stand in a frame of their own, a sample has none and says what it is."""
    runs = write_runs(tmp_path, PLAIN, {"good": 0.5})
    results = str(shared_data / "mteb_results")
    _, _, source = report(tmp_path, "--results", results, "--runs", *runs, "--benchmark", "RARb", "--benchmark", PLAIN)
    rarb, of_sample = source.split(f'<section id="{PLAIN}">')

    assert rarb.count('<aside class="published">') == 1
    assert "not ranked" in rarb
    of_sample = of_sample.partition("</section>")[0]
    assert 'class="published"' not in of_sample
    assert "Paper says" not in of_sample
    assert "This is a sample" in of_sample
    assert "This is a sample" not in rarb


def test_splits_are_never_mixed(tmp_path: Path) -> None:
    """A page is about one split; a run of the other one is refused by name."""
    path = tmp_path / f"{PLAIN}.trec"
    write_run(Run.from_dict(passage_run(PLAIN, split="validation")), path, "trec")
    arguments = ["--runs", f"one={path}", "--benchmark", PLAIN]

    assert cli.main(["report", *arguments, "-o", str(tmp_path / "page.html")]) == 2
    page, content, _ = report(tmp_path, *arguments, "--split", "validation")
    (ranking,) = content["rankings"]  # type: ignore[misc]
    assert ranking["split"] == "validation"
    assert "split validation" in page.text


def test_what_luck_explains_is_marked(tmp_path: Path) -> None:
    """Two systems that differ on few queries cannot be told apart; one far below can."""
    runs = write_runs(tmp_path, PLAIN, {"good": 0.5, "alike": 0.48, "poor": 0.0})
    page, content, _ = report(tmp_path, "--runs", *runs, "--benchmark", PLAIN)
    (ranking,) = content["rankings"]  # type: ignore[misc]
    rows = {row["model"]: row for row in ranking["models"]}
    table = {" ".join(cells[1].split()): cells for cells in page.tables[0][1:]}

    assert [other["model"] for other in rows["good"]["not_told_apart"]] == ["alike"]
    assert rows["poor"]["not_told_apart"] == []
    for name, row in rows.items():
        low, high = row["interval"]
        assert low < row["arithmetic_mean"] < high
        assert table[f"{name}run file"][3] == f"{low:.4f} to {high:.4f}"
    assert cli.main(["report", "--runs", *runs, "--benchmark", PLAIN, "-o", str(tmp_path / "report.md")]) == 0
    low, high = rows["alike"]["interval"]
    line = f"| alike | run file | {rows['alike']['arithmetic_mean']:.4f} | {low:.4f} to {high:.4f} | "
    assert f"{line}{rows['good']['rank']} |" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert table["goodrun file"][4].strip() == f"≈ #{rows['alike']['rank']}"
    assert table["poorrun file"][4].strip() == "\u2013"


def test_aggregate_is_tested_as_it_is_reduced() -> None:
    """Reducing whole arrays is what the aggregate does to single values, nested and geometric."""
    rng = np.random.default_rng(0)
    nested = Reduction(mean="geometric", members=("a", Reduction(name="two", members=("b", "c"))))
    values = {name: rng.uniform(size=5) for name in "abc"}
    arrays = reduce_arrays(values, nested)
    one_by_one = [reduce_nested({name: float(v[at]) for name, v in values.items()}, nested).value for at in range(5)]

    assert arrays == pytest.approx(one_by_one, abs=1e-4)
    assert reduce_arrays({**values, "a": np.zeros(5)}, nested).tolist() == [0.0] * 5


def test_one_task_is_tested_as_compare_does() -> None:
    """On a single task p-value and interval are those of `crumb-tasks compare`, within the error of resampling."""
    rng = np.random.default_rng(1)
    first = rng.uniform(size=60)
    second = np.clip(first + rng.normal(0.03, 0.1, size=60), 0, 1)
    systems = [{"t": QueryValues("nDCG@10", tuple(map(str, range(60))), v)} for v in (first, second)]
    only = Reduction(members=("t",))

    assert p_values(systems, only, [(0, 1)])[0] == pytest.approx(randomisation_test(first, second), abs=0.02)
    assert interval(systems[0], only) == pytest.approx(bootstrap_interval(first), abs=0.01)
    assert p_values([systems[0], systems[0]], only, [(0, 1)]) == [1.0]


def test_run_of_a_known_model_stands_behind_its_result(tmp_path: Path) -> None:
    """MTEB's result and a run of the same model and value are one row; with another value they are two."""
    values = passage_run(PLAIN, lift=0.4)
    run = Run.from_dict(values)
    value = score(run, sample(PLAIN), find_task(PLAIN)).value("nDCG@10")
    path = tmp_path / f"{PLAIN}.trec"
    write_run(run, path, "trec")
    for name, shift in (("same", 0.0), ("other", -0.1)):
        folder = tmp_path / name
        write_result(folder, "org/model", PLAIN, ndcg_at_10=round(value + shift, 6))
        arguments = ["--results", str(folder), "--runs", f"org/model={path}", "--benchmark", PLAIN]
        _, content, _ = report(tmp_path, *arguments)
        (ranking,) = content["rankings"]  # type: ignore[misc]
        conditions = [row["condition"] for row in ranking["models"]]

        assert conditions == (["native"] if name == "same" else ["run file", "native"])
        assert "interval" in ranking["models"][0]


def test_records_of_runs_are_read(tmp_path: Path) -> None:
    """Values per query and the run that `crumb-tasks run` keeps stand behind its result, while it is that result."""
    run = Run.from_dict(document_run(MAXP))
    scores = score(run, sample(MAXP), find_task(MAXP))
    path = write_result(tmp_path, "org/model", MAXP, ndcg_at_10=round(scores.value("nDCG@10"), 6))
    values = dict(zip(scores.query_ids, scores.per_query["nDCG@10"].tolist(), strict=True))
    record = Record(
        task=MAXP,
        identity={},
        per_query={"default/test": {"measure": "nDCG@10", "values": values}},
        result_sha256=file_sha256(path),
    )
    record.write(path.parent)
    write_run(run, run_path(path.parent, MAXP, "test", "default"), "parquet")
    results = read_results(tmp_path, {MAXP})
    ((_, by_task),) = read_backings(tmp_path, results, "test").items()

    assert by_task[MAXP].per_query["nDCG@10"].values.mean() == pytest.approx(scores.value("nDCG@10"))
    page, _, _ = report(tmp_path, "--results", str(tmp_path), "--benchmark", MAXP)
    assert f"3 of {len(values)} queries" in page.text
    write_result(tmp_path, "org/model", MAXP, ndcg_at_10=0.5)
    assert read_backings(tmp_path, read_results(tmp_path, {MAXP}), "test") == {}


def test_queries_show_what_each_system_found() -> None:
    """Grades, scores, winning passages, and at which rank the others have the relevant documents."""
    card, collection = find_task(MAXP), sample(MAXP)
    runs = {name: Run.from_dict(passage_run(MAXP, lift=lift)) for name, lift in (("good", 0.6), ("poor", 0.0))}
    views = view_queries(card, collection, runs, 4)
    grades = collection.graded.to_dict()

    spread = [abs(query.answers[0].value - query.answers[1].value) for query in views.queries]
    assert spread == sorted(spread, reverse=True)
    for query in views.queries:
        assert query.text
        assert query.instruction
        of_query = grades[query.query_id]
        assert query.n_wanted == sum(grade > 0 for grade in of_query.values())
        for answer in query.answers:
            assert [found.rank for found in answer.top] == [1, 2, 3, 4, 5]
            for found in answer.top:
                assert found.grade == of_query.get(found.document)
                assert found.is_relevant == (of_query.get(found.document, 0) > 0)
                assert found.passage.startswith(f"{found.document}:")
                assert found.text
        for wanted in query.wanted:
            in_top = [found.rank for found in query.answers[0].top if found.document == wanted.document]
            assert wanted.ranks[0] == in_top[0] if in_top else wanted.ranks[0] is None or wanted.ranks[0] > 5


def test_charts_take_the_colours_of_the_page(tmp_path: Path) -> None:
    """Every chart's text is text, and no colour is fixed: light, dark and print decide."""
    for task, values in (("AlphaNLI", (0.4, 0.5)), ("HellaSwag", (0.2, 0.3))):
        for model, value in zip(("me/one", "me/two"), values, strict=True):
            write_result(tmp_path, model, task, ndcg_at_10=value, recall_at_100=0.9)
    ranking = rank("RARb", read_results(tmp_path, {"AlphaNLI", "HellaSwag"}))
    (chart,) = draw_charts(ranking, [row.system for row in ranking.rows])

    assert set(re.findall(r"#[0-9a-f]{6}\b", chart.svg)) <= {"#000000", "#ffffff"}
    assert "var(--series-0)" in chart.svg
    assert "var(--series-1)" in chart.svg
    assert ">AlphaNLI<" in chart.svg.replace("</text>", "<")
    assert not re.search(r'<g id=|<metadata|width="[\d.]+pt"', chart.svg)


def test_robustness_has_its_chart_where_groups_exist(tmp_path: Path) -> None:
    """A task of grouped queries is drawn against its nDCG; other tasks are not."""
    for value in (0.5, 0.6):
        write_result(tmp_path, f"me/{value}", "InstructIRSample", robustness_at_10=value - 0.2, ndcg_at_10=value)
    ranking = rank("InstructIRSample", read_results(tmp_path, {"InstructIRSample"}))
    titles = [chart.title for chart in draw_charts(ranking, [])]

    assert "Robustness against nDCG" in titles
    assert "nDCG@10 against Recall@100" not in titles
    assert "Quality against evaluation time" in titles


def test_pareto_front_has_no_beaten_point() -> None:
    """On the front nothing is both cheaper and better; equal cost keeps the better one."""
    points = [(1.0, 0.2), (1.0, 0.3), (2.0, 0.1), (3.0, 0.5), (4.0, 0.5)]

    assert pareto_front(points) == [(1.0, 0.3), (3.0, 0.5)]


def test_page_tells_the_rules_of_each_task(tmp_path: Path) -> None:
    """Need, relevance, gain, cutoff, aggregation, zero rules, omitted counts, MaxP, data and paper stand there."""
    runs = write_runs(tmp_path, MAXP, {"good": 0.5})
    page, _, _ = report(tmp_path, "--runs", *runs, "--benchmark", MAXP)

    for text in (
        "Satisfy every criterion",
        "A trial that the patient is eligible for (2)",
        "linear gain (the grade itself), looking at the first 10",
        "mean over the judged queries",
        "a query whose judgements are all zero counts 0",
        "Queries left out of the mean0",
        "the best passage of a document counts",
        "samples/crumb",
        "https://arxiv.org/abs/2509.07253",
    ):
        assert text in page.text.replace("\n", "")


def test_equal_values_are_one_rank_and_ties(tmp_path: Path) -> None:
    """A run under two names shares a rank and cannot be told from itself."""
    runs = write_runs(tmp_path, PLAIN, {"one": 0.3, "two": 0.3})
    results = [
        row["rank"] for row in report(tmp_path, "--runs", *runs, "--benchmark", PLAIN)[1]["rankings"][0]["models"]
    ]  # type: ignore[index]

    assert results == [1, 1]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--models", "goud"], "--models: no results of 'goud'; did you mean 'good'"),
        (["--queries", "-1"], "--queries -1 is negative"),
        (["--benchmark", MAXP], f"is a run of {PLAIN}, which none of the rankings has"),
        (["--runs", "mine="], "--runs 'mine=' names no file; write it as NAME=FILE"),
        (["--runs", "a.trec"], "the name 'a.trec' tells no task; name the file after its task"),
    ],
)
def test_misuse_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], complaint: str
) -> None:
    """What cannot be done is said, with exit code 2, and no page is written."""
    runs = write_runs(tmp_path, PLAIN, {"good": 0.5})
    arguments = more if "--benchmark" in more else ["--benchmark", PLAIN, *more]

    assert cli.main(["report", "--runs", *runs, *arguments, "-o", str(tmp_path / "page.html")]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_model_that_is_not_there_is_said_for_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name is no less wrong where the form has no colours."""
    runs = write_runs(tmp_path, PLAIN, {"good": 0.5})

    assert cli.main(["report", "--runs", *runs, "--benchmark", PLAIN, "--models", "goud"]) == 2
    assert "--models: no results of 'goud'" in capsys.readouterr().err


def test_names_and_paths_of_runs_may_hold_equals_signs(tmp_path: Path) -> None:
    """What stands before the first sign that leaves a file is the name."""
    path = tmp_path / "lr=0.1" / f"{PLAIN}.json"
    path.parent.mkdir()
    write_run(Run.from_dict(passage_run(PLAIN)), path, "json")
    for given, name in ((f"k=5={path}", "k=5"), (str(path), "lr=0.1")):
        _, content, _ = report(tmp_path, "--runs", given, "--benchmark", PLAIN)
        (row,) = content["rankings"][0]["models"]  # type: ignore[index]

        assert row["model"] == name


def test_two_runs_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which of two runs would be shown is not guessed."""
    runs = write_runs(tmp_path, PLAIN, {"one": 0.3, "two": 0.1})
    runs = [f"same={argument.partition('=')[2]}" for argument in runs]

    assert cli.main(["report", "--runs", *runs, "--benchmark", PLAIN]) == 2
    assert f"are both runs of 'same' on {PLAIN}" in capsys.readouterr().err


def test_folder_of_runs_is_one_system(tmp_path: Path) -> None:
    """A folder with a run for each task is called after the folder, and its aggregate is computed."""
    folder = tmp_path / "mine"
    folder.mkdir()
    members = find_aggregate_of("CRUMBSample").task_names
    for task in members:
        write_run(Run.from_dict(passage_run(task)), folder / f"{task}.json", "json")
    page, content, _ = report(tmp_path, "--runs", str(folder), "--benchmark", "CRUMBSample")
    (row,) = content["rankings"][0]["models"]  # type: ignore[index]

    assert (row["model"], row["condition"], row["rank"], row["n_members"]) == ("mine", "run file", 1, 8)
    assert row["arithmetic_mean"] == pytest.approx(sum(row["members"].values()) / 8, abs=1e-6)
    assert "Profile over the tasks" in page.text


def test_values_of_other_queries_are_not_tested() -> None:
    """Values per query whose mean is not the result's are those of something else and say nothing about it."""
    run = Run.from_dict(passage_run(PLAIN))
    card, collection = find_task(PLAIN), sample(PLAIN)
    entry = ScoredRun("one", "a.trec", card, run, collection, score(run, collection, card))
    results, _ = with_runs(Results({}, ()), {}, [entry])
    ranking = rank(PLAIN, results)
    (system,) = results.by_system
    foreign = QueryValues("nDCG@10", ("q",), np.array([0.123]))

    assert with_tests(ranking, {system: {PLAIN: foreign}}).rows[0].interval is None


def test_page_needs_neither_mteb_nor_torch(tmp_path: Path) -> None:
    """The page is made of plain files; no model library is imported for it."""
    runs = write_runs(tmp_path, PLAIN, {"good": 0.5})
    command = (
        "import sys\nfrom crumb_tasks import cli\n"
        f"code = cli.main(['report', '--runs', {runs[0]!r}, '--benchmark', {PLAIN!r}, '-o', 'page.html'])\n"
        "print(code, sorted({'mteb', 'torch', 'datasets'} & set(sys.modules)))"
    )
    ran = start(sys.executable, "-c", command, cwd=tmp_path, PYTHONPATH=str(ROOT), LC_ALL="C", PYTHONUTF8="0")

    assert ran.stdout.rstrip().split("\n")[-1] == "0 []", ran.stderr


def test_predictions_of_a_folder_stand_behind_their_model(tmp_path: Path) -> None:
    """A folder of MTEB's predictions is called as they say; where they disagree it is one system, as the folder."""
    first, second = find_aggregate_of("CRUMBSample").task_names[1:3]
    results, folder = tmp_path / "results", tmp_path / "predictions"
    folder.mkdir()
    for task in (first, second):
        run = Run.from_dict(passage_run(task, lift=0.4))
        value = score(run, sample(task), find_task(task)).value("nDCG@10")
        write_run(run, folder / f"{task}_predictions.json", tag="org/model")
        write_result(results, "org/model", task, ndcg_at_10=round(value, 6))
    arguments = ["--results", str(results), "--runs", str(folder), "--benchmark", "CRUMBSample"]
    _, content, _ = report(tmp_path, *arguments)
    (row,) = content["rankings"][0]["models"]  # type: ignore[index]

    assert (row["model"], row["condition"], row["n_members"]) == ("org/model", "native", 2)
    write_run(Run.from_dict(passage_run(second)), folder / f"{second}_predictions.json", tag="org/other")
    _, content, _ = report(tmp_path, *arguments)
    assert {row["model"] for row in content["rankings"][0]["models"]} == {"org/model", "predictions"}  # type: ignore[index]


def test_run_file_is_on_the_data_that_results_name(tmp_path: Path) -> None:
    """A result of MTEB and a run file on the same data are not said to be on several revisions."""
    path = write_result(tmp_path / "results", "org/model", PLAIN, ndcg_at_10=0.5)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "dataset_revision": "sample"}), encoding="utf-8")
    runs = write_runs(tmp_path, PLAIN, {"mine": 0.4})
    _, found, _ = report(tmp_path, "--results", str(tmp_path / "results"), "--runs", *runs, "--benchmark", PLAIN)

    assert found["rankings"][0]["data_revisions"] == {PLAIN: {"sample": 2}}  # type: ignore[index]


def test_revisions_of_a_model_can_be_told_apart(tmp_path: Path) -> None:
    """Where there are results of several revisions, each row names its own; a model with one is named alone."""
    for model, revision, value in (("org/two", "first", 0.5), ("org/two", "second", 0.4), ("org/one", "only", 0.3)):
        path = write_result(tmp_path / "results", model, PLAIN, ndcg_at_10=value)
        moved = path.parent.with_name(revision)
        path.parent.rename(moved)
        meta = {"name": model, "revision": revision}
        (moved / "model_meta.json").write_text(json.dumps(meta), encoding="utf-8")
    arguments = ["report", "--results", str(tmp_path / "results"), "--benchmark", PLAIN]
    page, _, _ = report(tmp_path, *arguments[1:])
    assert cli.main([*arguments, "-o", str(tmp_path / "report.md")]) == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")

    assert [cells[1].strip() for cells in page.tables[0][1:4]] == ["org/two @ first", "org/two @ second", "org/one"]
    assert "| 1 | org/two @ first | native | 0.5000 |" in text
    assert "| 3 | org/one | native | 0.3000 |" in text
