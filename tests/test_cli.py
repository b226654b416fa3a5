"""The command line, through the real command in a subprocess wherever its streams or exit code matter."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from standin import ROOT, start

import crumb_tasks
from crumb_tasks import cards, cli

ODD_CARD = """
name = "odd"
title = "Odd"
description = "Tasks that differ in every mark."
facts = ["The upstream's café has two spellings."]

[defaults]
description = "Find the naïve résumé."
need = "Zażółć gęślą jaźń: find it — exactly."
relevant = "Grade 2 or better."
loader = "beir"
options = { parent_field = "parent_id" }
relevant_from = 2
main_measure = "nDCG(dcg='exp-log2')@10"
all_zero = "exclude"
max_passage = true
license = "cc-by-4.0"
source = { hub = "org/odd", revision = "0123456789012345678901234567890123456789" }

[[tasks]]
name = "OddUser"
public = false

[[tasks]]
name = "OddSample"
public = false
sample = true
source = { sample = "crumb" }

[[tasks]]
name = "OddOpen"
schema_verified = true
[tasks.expected.test]
queries = 12
documents = 345
passages = 678

[[aggregates]]
name = "OddMean"
description = "The mean of two."
reduction = { mean = "geometric", members = ["OddUser", "OddOpen"] }

[[benchmarks]]
name = "Odd(eng)"
aliases = ["OddAlias"]
description = "Both."
aggregate = "OddMean"

[[published]]
task = "OddOpen"
system = "BM25"
measure = "nDCG@10"
value = 0.321
setting = "title only"
source = "Paper, Table 2"
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose only card is ODD_CARD; run commands in it."""
    folder = tmp_path_factory.mktemp("odd")
    shutil.copytree(
        ROOT / "crumb_tasks",
        folder / "crumb_tasks",
        ignore=shutil.ignore_patterns("__pycache__", "samples", "task_metadata"),
    )
    (folder / "task_metadata").mkdir()
    (folder / "task_metadata" / "odd.toml").write_text(ODD_CARD, encoding="utf-8")
    return folder


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``crumb-tasks`` with ``arguments``."""
    return start(sys.executable, "-m", "crumb_tasks", *arguments, cwd=cwd, **environment)


def test_list_names_every_task_with_its_marks(odd: Path) -> None:
    """A row holds name, benchmark, sizes, marks and need."""
    lines = run("list", cwd=odd).stdout.splitlines()

    assert [line.split()[:4] for line in lines[1:5]] == [
        ["OddUser", "odd", "test:?", "?"],
        ["OddSample", "odd", "test:?", "?"],
        ["OddOpen", "odd", "test:12", "678"],
        ["OddMean", "odd", "test", "2"],
    ]
    assert "user data, schema unseen" in lines[1]
    assert "sample, schema unseen" in lines[2]
    assert "aggregate" in lines[4]
    assert "For mteb run -b: Odd(eng)" in lines
    assert lines[1].endswith("Zażółć gęślą jaźń: find it — exactly.")


def test_list_json_is_for_programs(odd: Path) -> None:
    """The same facts as one JSON object."""
    listed = json.loads(run("list", "--json", cwd=odd).stdout)

    assert [task["name"] for task in listed["tasks"]] == ["OddUser", "OddSample", "OddOpen"]
    assert listed["tasks"][2]["splits"] == {"test": {"queries": 12, "documents": 345, "passages": 678, "qrels": None}}
    assert [task["public"] for task in listed["tasks"]] == [False, False, True]
    assert listed["aggregates"][0]["tasks"] == ["OddUser", "OddOpen"]
    assert listed["benchmarks"][0]["aggregate"] == "OddMean"


def test_list_holds_all_cards() -> None:
    """Nothing that the package's cards describe is left out."""
    listed = json.loads(run("list", "--json").stdout)
    known = {entry.name for card in cards.read_cards() for entry in (*card.tasks, *card.aggregates, *card.benchmarks)}
    known |= {card.name for card in cards.read_cards() if card.no_retrieval}

    assert known
    assert {entry["name"] for entries in listed.values() for entry in entries} == known


def test_wrong_card_is_one_line_with_a_suggestion(odd: Path, tmp_path: Path) -> None:
    """A misspelt measure is an error at `list`, before anything was run."""
    copy = shutil.copytree(odd, tmp_path / "copy")
    card = copy / "task_metadata" / "odd.toml"
    card.write_text(card.read_text(encoding="utf-8").replace("max_passage", "max_pasage"), encoding="utf-8")

    shown = run("list", cwd=copy)

    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith("crumb-tasks: odd.toml: tasks 'OddUser'.max_pasage: unknown key")
    assert "'max_passage'" in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_show_tells_a_person_what_a_task_is(odd: Path) -> None:
    """Need, what counts as relevant, gain, cutoff, aggregation, zero rules, source, licence, facts, numbers."""
    shown = run("show", "OddOpen", cwd=odd).stdout
    flowing = " ".join(shown.split())

    for part in (
        "need Zażółć gęślą jaźń: find it — exactly.",
        "relevant Grade 2 or better.",
        "exponential gain (2^grade - 1), looking at the first 10",
        "MaxP: a document ranks where its best passage does",
        "a query whose judgements are all zero is left out and counted",
        "Hugging Face Hub org/odd at 0123456789012345678901234567890123456789",
        "licence cc-by-4.0",
        "12 queries, 345 documents, 678 passages",
        "note The upstream's café has two spellings.",
        "published BM25: nDCG@10 0.321, title only (Paper, Table 2)",
    ):
        assert part in flowing
    assert max(map(len, shown.splitlines())) <= 100


def test_show_knows_aggregates_and_benchmarks(odd: Path) -> None:
    """An aggregate shows its mean and members; a benchmark is found by its alias, too."""
    aggregate = " ".join(run("show", "OddMean", cwd=odd).stdout.split())
    benchmark = run("show", "OddAlias", cwd=odd).stdout

    assert "geometric mean of the members' nDCG@10; no value while a member is missing" in aggregate
    assert "members OddUser, OddOpen" in aggregate
    assert "mteb run -b 'Odd(eng)' -m MODEL" in benchmark


@pytest.mark.parametrize(
    "name", [entry.name for card in cards.read_cards() for entry in (*card.tasks, *card.aggregates, *card.benchmarks)]
)
def test_every_card_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No combination of a card's fields breaks `show`."""
    assert cli.main(["show", name]) == 0
    assert capsys.readouterr().out.startswith(name)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lst"], "there is no command 'lst'; did you mean 'list'? (crumb-tasks --help lists all)"),
        (["list", "--jsn"], "unrecognized arguments: --jsn (crumb-tasks --help explains)"),
        ([], "the following arguments are required: COMMAND (crumb-tasks --help explains)"),
        (["show", "OddOpn"], "no card has 'OddOpn'; did you mean 'OddOpen'"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(odd: Path, arguments: list[str], line: str) -> None:
    """What is wrong and what to do, on stderr, without a traceback."""
    shown = run(*arguments, cwd=odd)

    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"crumb-tasks: {line}")
    assert shown.stderr.count("\n") == 1


def test_data_root_of_one_call_ends_with_it(data: Path) -> None:
    """A program that calls main with --data keeps its own data root."""
    from crumb_tasks.sources import data_root

    before = data_root()

    assert cli.main(["validate", "CRUMBSampleLegalQA", "--split", "test", "--no-text", "--data", str(data)]) == 0
    assert data_root() == before


def test_debug_shows_the_traceback(odd: Path) -> None:
    """CRUMB_TASKS_DEBUG=1 is for those who look for the place."""
    assert "Traceback" in run("show", "x", cwd=odd, CRUMB_TASKS_DEBUG="1").stderr


def test_unexpected_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A bug of ours says where to look and exits 1, as a finding does."""

    def fail(_: object) -> int:
        raise KeyError("x\ny")

    monkeypatch.delenv("CRUMB_TASKS_DEBUG", raising=False)
    monkeypatch.setattr(cli.command_module("list"), "run", fail)

    assert cli.main(["list"]) == 1
    assert capsys.readouterr().err == "crumb-tasks: unexpected KeyError: 'x\\ny' (CRUMB_TASKS_DEBUG=1 shows where)\n"


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["show", "OddOpen"]])
def test_non_ascii_survives_the_c_locale(odd: Path, arguments: list[str]) -> None:
    """Output is UTF-8 also where Python would choose ASCII."""
    shown = run(*arguments, cwd=odd, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")

    assert shown.returncode == 0, shown.stderr
    assert "Zażółć gęślą jaźń" in shown.stdout


BEIR_FILES = {
    "corpus.jsonl": """{"_id": "d1:0", "title": "", "text": "naïve", "parent_id": "d1"}
{"_id": "d2:0", "title": "", "text": "résumé", "parent_id": "d2"}
""",
    "queries.jsonl": """{"_id": "q1", "text": "find it"}
""",
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\n",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data root with the collection of the odd card, in its upstream layout."""
    for name, text in BEIR_FILES.items():
        file = tmp_path / "org" / "odd" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path


def test_validate_finds_what_breaks_a_promise(odd: Path, data: Path) -> None:
    """Findings make the exit code 1; `--json` prints the same as one object a line."""
    shown = run("validate", "OddOpen", "--data", str(data), cwd=odd)
    told = json.loads(run("validate", "OddOpen", "--data", str(data), "--json", "--split", "test", cwd=odd).stdout)

    assert shown.returncode == 1, shown.stderr
    assert shown.stdout.startswith(f"OddOpen test (data root {data / 'org' / 'odd'})\n")
    assert "  finding counts: 1 queries, expected 12\n" in shown.stdout
    assert (told["task"], told["split"]) == ("OddOpen", "test")
    assert {"finding", "note"} == {entry["severity"] for entry in told["findings"]}


def test_validate_passes_sound_data() -> None:
    """The embedded sample keeps its card's promises."""
    shown = run("validate", "CRUMBSampleLegalQA", "--no-text")

    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (0, "no findings")


def test_validate_knows_the_splits() -> None:
    """A name from elsewhere is answered with the one that is meant."""
    shown = run("validate", "CRUMBSampleLegalQA", "--split", "dev")

    assert shown.returncode == 2
    assert shown.stderr == "crumb-tasks: CRUMBSampleLegalQA calls the split 'dev' 'validation'\n"


def test_missing_data_are_one_line_with_the_command_that_gets_them() -> None:
    """Without data and network a person reads which files of which repository at which revision, and what to type."""
    shown = run(
        "export",
        "MOOSEChem150",
        "--format",
        "trec",
        "--output",
        "nowhere",
        HF_HUB_OFFLINE="1",
        CRUMB_TASKS_CACHE="nowhere",
    )

    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith("crumb-tasks: MOOSEChem150: Data/")
    assert "ZonglinY/MOOSE-Chem at revision 8de57aa67263064c8264f9a59340812ff9ad7398" in shown.stderr
    assert "crumb-tasks download MOOSEChem150 --data DIR" in shown.stderr
    assert shown.stderr.count("\n") == 1
    assert not (ROOT / "nowhere").exists()


def test_download_goes_on_after_a_file_that_cannot_be_had(tmp_path: Path) -> None:
    """What lies in the package is printed, what cannot be had is a line on stderr and the exit code 1."""
    shown = run(
        "download",
        "CRUMBSampleLegalQA",
        "MOOSEChem150",
        "--data",
        str(tmp_path),
        HF_HUB_OFFLINE="1",
        CRUMB_TASKS_CACHE=str(tmp_path),
    )

    assert shown.returncode == 1
    assert {Path(line).name for line in shown.stdout.splitlines()} == {"query_labels.jsonl", "passage_corpus.jsonl"}
    assert all(line.startswith("crumb-tasks: MOOSEChem150: ") for line in shown.stderr.splitlines())
    assert shown.stderr


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("trec", {"topics.tsv", "qrels.txt", "corpus.jsonl"}),
        ("beir", {"queries.jsonl", "corpus.jsonl", "test.tsv"}),
    ],
)
def test_export_writes_and_names_the_files(odd: Path, data: Path, tmp_path: Path, kind: str, names: set[str]) -> None:
    """Each printed path is a file; texts arrive as UTF-8 under the C locale, too."""
    shown = run(
        "export",
        "OddUser",
        "--format",
        kind,
        "--output",
        str(tmp_path / "out"),
        "--data",
        str(data),
        cwd=odd,
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
    )
    paths = [Path(line) for line in shown.stdout.splitlines()]

    assert shown.returncode == 0, shown.stderr
    assert names <= {path.name for path in paths}
    assert any("naïve" in path.read_text(encoding="utf-8") for path in paths)


def test_max_passage_needs_to_know_the_documents(odd: Path, data: Path, tmp_path: Path) -> None:
    """A card with MaxP whose loader is not told which field names the document is a wrong card."""
    copy = shutil.copytree(odd, tmp_path / "copy")
    card = copy / "task_metadata" / "odd.toml"
    card.write_text(ODD_CARD.replace('options = { parent_field = "parent_id" }', ""), encoding="utf-8")

    shown = run("validate", "OddOpen", "--data", str(data), cwd=copy)

    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert "OddOpen: max_passage needs options.parent_field" in shown.stderr


def test_closed_pipe_is_no_error() -> None:
    """`crumb-tasks list | head -1` ends quietly, with the exit code that a shell gives for SIGPIPE."""
    command = [sys.executable, "-m", "crumb_tasks", "list", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(sys.platform == "win32", reason="no sh")
def test_closed_stdout_is_no_error() -> None:
    """`crumb-tasks list >&-` has nowhere to print and says nothing."""
    shown = start("sh", "-c", 'exec "$0" -m crumb_tasks list >&-', sys.executable, cwd=ROOT)

    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize("command", cli.command_names())
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--help has a description, a line for every argument, and nothing that argparse made up alone."""
    parser = cli.make_parser([command])
    with pytest.raises(SystemExit, match="0"):
        parser.parse_args([command, "--help"])
    shown = capsys.readouterr().out
    actions = parser._subparsers._group_actions[0].choices[command]._actions

    assert len(shown.split("\n\n")[1].split()) >= 6, "no description"
    assert [action.dest for action in actions if not action.help] == []


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The first page names all commands with a line each."""
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    shown = capsys.readouterr().out

    assert {line.split()[0] for line in shown.splitlines() if line.startswith("    ") and line[4] != " "} - {
        "COMMAND"
    } == set(cli.command_names())


def test_exported_names_are_these() -> None:
    """The public names of the package, each loaded when it is first used."""
    assert crumb_tasks.__all__ == ["__version__", "load_collection", "read_run", "register", "score"]
    assert all(getattr(crumb_tasks, name) for name in crumb_tasks.__all__)
    assert set(crumb_tasks.__all__) <= set(dir(crumb_tasks))
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        _ = crumb_tasks.scores
