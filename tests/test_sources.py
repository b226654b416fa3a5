from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub.constants
import pytest
from generate_crumb import REPOSITORY, write_task

from crumb_tasks.cards import Source, TaskCard, find_task
from crumb_tasks.errors import MissingDataError, UsageError
from crumb_tasks.sources import _hosts, cache_dir, data_root, fetch_into, open_source, set_data_root

ROOT = Path(__file__).parent.parent
REVISION = str(find_task("CRUMBLegalQA").source.revision)
LOAD = "import sys; from crumb_tasks.loaders import load_collection; print(len(load_collection(sys.argv[1]).corpus))"


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on this checkout with a clean environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "CRUMB_TASKS_"))}
    return subprocess.run(
        [sys.executable, *arguments],
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=sys.prefix,  # not the checkout, which would be found first
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


class _Files(BaseHTTPRequestHandler):
    """Gives the files of a folder the way the Hub and GitHub do, and remembers what was asked for."""

    folder: Path
    asked: list[str]
    cut_short = False

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = self.folder / self.path.partition("/resolve/")[2].partition("/")[2]
        if "/resolve/" not in self.path:
            path = self.folder / self.path.split("/", 4)[4]
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) + (10 if self.cut_short else 0)))
        self.send_header("ETag", f'"{len(content):040d}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def serving(folder: Path, *, cut_short: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Serve ``folder`` and yield the address and what was asked for."""
    asked: list[str] = []
    handler = type("Handler", (_Files,), {"folder": folder, "asked": asked, "cut_short": cut_short})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def card(**source: str) -> TaskCard:
    """Return a card that differs in its source only."""
    return TaskCard(name="Tiny", description="", loader="beir", source=Source(**source))


def test_the_chosen_root_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--data wins over CRUMB_TASKS_DATA, and taking it back restores that."""
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(tmp_path / "environment"))
    set_data_root(tmp_path / "chosen")
    chosen = data_root()
    set_data_root(None)

    assert chosen == tmp_path / "chosen"
    assert data_root() == tmp_path / "environment"


def test_the_cache_folder_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CRUMB_TASKS_CACHE, then the platform's cache folder."""
    monkeypatch.setenv("CRUMB_TASKS_CACHE", str(tmp_path))
    named = cache_dir()
    monkeypatch.delenv("CRUMB_TASKS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    assert named == tmp_path
    assert cache_dir() == tmp_path / "xdg" / "crumb_tasks"


def test_a_file_of_the_data_root_lies_where_upstream_has_it(tmp_path: Path) -> None:
    """DIR/org/name/folder/file, without a layout of our own."""
    place = tmp_path / "org" / "name" / "inner" / "corpus.jsonl"
    place.parent.mkdir(parents=True)
    place.write_text("{}\n", encoding="utf-8")

    source = open_source(card(hub="org/name", revision="abc", folder="inner"), root=tmp_path)

    assert source.path("corpus.jsonl") == place
    assert source.is_local
    assert str(tmp_path) in source.origin


def test_all_missing_files_are_named_in_one_line(tmp_path: Path) -> None:
    """One line: repository, revision, every file, and the command that gets them."""
    (tmp_path / "org" / "name").mkdir(parents=True)
    source = open_source(card(hub="org/name", revision="abc"), root=tmp_path)

    with pytest.raises(MissingDataError) as caught:
        source.paths(["corpus.jsonl", "queries.jsonl"])

    message = str(caught.value)
    assert "\n" not in message
    for part in ("org/name", "abc", "corpus.jsonl, queries.jsonl", "crumb-tasks download Tiny --data DIR"):
        assert part in message


def test_a_data_root_that_is_not_there_is_misuse(tmp_path: Path) -> None:
    """Nothing is fetched in its place; data of the user's own still say whose they are, the sample needs none."""
    root = tmp_path / "nowhere"
    with pytest.raises(UsageError, match=r"the data root .*nowhere is no directory; correct --data or CRUMB_TASKS"):
        open_source(card(hub="org/name", revision="abc"), root=root).path("corpus.jsonl")
    with pytest.raises(MissingDataError, match=r"nowhere is no directory; these data are yours to bring \(LDC93T3A\)"):
        open_source(card(hub="org/closed", user="LDC93T3A"), root=root).path("docs.sgml")
    assert open_source(find_task("CRUMBSampleLegalQA"), root=root).path("legal_qa/passage_corpus.jsonl").is_file()


def test_the_data_root_that_lacks_a_repository_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who has set one sees where it was looked for, before what the host said."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    task = card(hub="org/name", revision="abc")

    with pytest.raises(MissingDataError, match=rf"not in the data root \({tmp_path}\); .*crumb-tasks download Tiny"):
        open_source(task, root=tmp_path).path("corpus.jsonl")
    with pytest.raises(MissingDataError) as caught:
        fetch_into(task.source, "corpus.jsonl", tmp_path / "new", task="Tiny")
    assert "data root" not in str(caught.value)


def test_data_that_are_the_users_own_are_never_fetched(tmp_path: Path) -> None:
    """The line says whose they are, how to get them and where to put them."""
    source = open_source(card(hub="org/closed", user="LDC93T3A, under licence"), root=tmp_path)

    with pytest.raises(MissingDataError, match=r"LDC93T3A, under licence.*DIR/org/closed.*CRUMB_TASKS_DATA=DIR"):
        source.path("docs.sgml")


def test_the_hub_cache_is_enough_offline(tmp_path: Path) -> None:
    """HF_HUB_OFFLINE=1 and a snapshot in the Hub's cache layout: works without a data root."""
    write_task(tmp_path, "theorem_retrieval")
    snapshots = tmp_path / "home" / "hub" / "datasets--jfkback--crumb" / "snapshots"
    snapshots.mkdir(parents=True)
    (tmp_path / REPOSITORY).rename(snapshots / REVISION)

    done = python("-c", LOAD, "CRUMBTheoremRetrieval", HF_HOME=str(tmp_path / "home"), HF_HUB_OFFLINE="1")

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_offline_with_nothing_is_one_clear_line(tmp_path: Path) -> None:
    """No traceback of the Hub's client, but repository, revision, files and command."""
    code = (
        "from crumb_tasks.errors import MissingDataError\nfrom crumb_tasks.loaders import load_collection\n"
        "try: load_collection('CRUMBLegalQA')\nexcept MissingDataError as error: print(error)"
    )

    done = python("-c", code, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")

    assert done.stdout.count("\n") == 1
    for part in ("jfkback/crumb", REVISION, "legal_qa/passage_corpus.jsonl", "HF_HUB_OFFLINE", "crumb-tasks download"):
        assert part in done.stdout


def test_a_hub_that_cannot_be_reached_is_said_at_once(tmp_path: Path) -> None:
    """No minute of retries and no page of them: one line, for each file asked for."""
    code = (
        "from crumb_tasks.errors import MissingDataError\nfrom crumb_tasks.loaders import load_collection\n"
        "for split in ('test', 'validation'):\n"
        "    try: load_collection('CRUMBLegalQA', split)\n    except MissingDataError as error: print(error)"
    )

    done = python("-c", code, HF_HOME=str(tmp_path), HF_ENDPOINT="http://127.0.0.1:9")

    assert done.stderr == ""
    assert [line.count("the Hub cannot be reached") for line in done.stdout.splitlines()] == [1, 1]


def test_only_the_files_of_the_task_come_from_the_hub(tmp_path: Path) -> None:
    """A small task must not pull the corpora of the other seven."""
    made = write_task(tmp_path / "made", "scientific_paper").parent
    write_task(tmp_path / "made", "legal_qa")

    with serving(made) as (address, asked):
        done = python("-c", LOAD, "CRUMBPaperRetrieval", HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=address)

    assert done.returncode == 0, done.stderr
    got = {
        line.partition(f"/resolve/{REVISION}/")[2] for line in asked if line.startswith("GET") and "/resolve/" in line
    }
    assert got == {"scientific_paper/eval/query_labels.jsonl", "scientific_paper/passage_corpus.jsonl"}


def test_download_fills_a_data_root_in_upstream_layout(tmp_path: Path) -> None:
    """What `download` wrote loads as a data root, offline; a second call asks the Hub for nothing."""
    made = write_task(tmp_path / "made", "legal_qa").parent
    code = (
        "import sys; from crumb_tasks.downloading import download\n"
        "print(sum(done.path is not None for done in download(['CRUMBLegalQA'], sys.argv[1])))"
    )
    root = tmp_path / "root"

    with serving(made) as (address, asked):
        first = python("-c", code, str(root), HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=address)
        n_asked = len(asked)
        second = python("-c", code, str(root), HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=address)
    loaded = python("-c", LOAD, "CRUMBLegalQA", HF_HUB_OFFLINE="1", CRUMB_TASKS_DATA=str(root))

    assert first.stdout.strip() == second.stdout.strip() == "3", first.stderr
    assert len(asked) == n_asked
    assert loaded.returncode == 0, loaded.stderr


def test_a_file_of_github_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Raw files at the pinned commit, kept in the cache; afterwards no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    (tmp_path / "upstream" / "data").mkdir(parents=True)
    (tmp_path / "upstream" / "data" / "a b.csv").write_text("id\n", encoding="utf-8")
    (tmp_path / "upstream" / "data" / "c.csv").write_text("id,text\n0012,NA\n", encoding="utf-8")
    source = open_source(card(github="org/name", revision="abc", folder="data"))

    with serving(tmp_path / "upstream") as (address, asked):
        monkeypatch.setattr(_hosts, "GITHUB_RAW", address)
        path = source.path("c.csv")

    assert path.read_text(encoding="utf-8") == "id,text\n0012,NA\n"
    assert source.path("c.csv") == path
    assert asked == ["GET /org/name/abc/data/c.csv"]


def test_a_download_that_breaks_off_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half a file is never taken for a whole one."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    (tmp_path / "c.csv").write_text("id\n", encoding="utf-8")
    source = open_source(card(github="org/name", revision="abc"))

    with serving(tmp_path, cut_short=True) as (address, _):
        monkeypatch.setattr(_hosts, "GITHUB_RAW", address)
        with pytest.raises(MissingDataError, match="GitHub did not give it"):
            source.path("c.csv")

    assert [path for path in cache_dir().rglob("*") if path.is_file()] == []


def test_offline_means_github_as_well() -> None:
    """HF_HUB_OFFLINE keeps all of the package from the network."""
    source = open_source(card(github="org/name", revision="abc"))

    with pytest.raises(MissingDataError, match=r"c\.csv of the GitHub repository org/name at revision abc.*OFFLINE"):
        source.path("c.csv")


def test_the_sample_is_found_inside_a_zip(tmp_path: Path) -> None:
    """From zipimport and pip --target archives: the sample is read as bytes and copied whole."""
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (ROOT / "crumb_tasks").rglob("*"):
            if path.suffix in {".py", ".jsonl"}:
                file.write(path, path.relative_to(ROOT))
    code = (
        "from crumb_tasks.cards import Source\nfrom crumb_tasks.sources import OpenedSource\n"
        "opened = OpenedSource(source=Source(sample='crumb'), task='T', root=None, searched=None)\n"
        "print(opened.path('legal_qa/val/query_labels.jsonl').read_text(encoding='utf-8').count('query_id'))"
    )

    done = python("-c", code, PYTHONPATH=str(archive), CRUMB_TASKS_CACHE=str(tmp_path / "cache"))

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3
    assert list((tmp_path / "cache").rglob("query_labels.jsonl"))


def test_a_benchmark_in_two_repositories_is_read_from_both(tmp_path: Path) -> None:
    """`part:file` is a file of a further repository; each is named when it is missing, with its own revision."""
    corpus = Source(hub="org/corpus", revision="b" * 40)
    source = Source(hub="org/queries", revision="a" * 40, parts={"corpus": corpus})
    task = find_task("CRUMBLegalQA").model_copy(update={"source": source})
    for place in ("org/queries/q.jsonl", "org/corpus/c.jsonl"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(place, encoding="utf-8")
    opened = open_source(task, root=tmp_path)

    paths = opened.paths(["corpus:c.jsonl", "q.jsonl"])

    assert list(paths) == ["corpus:c.jsonl", "q.jsonl"]
    assert paths["corpus:c.jsonl"].read_text(encoding="utf-8") == "org/corpus/c.jsonl"
    assert opened.is_local
    assert opened.missing(["q.jsonl", "corpus:d.jsonl"]) == ("corpus:d.jsonl",)
    (tmp_path / "org/corpus/c.jsonl").unlink()
    with pytest.raises(MissingDataError, match=r"c\.jsonl of the Hub dataset org/corpus at revision b{40}"):
        opened.paths(["q.jsonl", "corpus:c.jsonl"])
    (tmp_path / "org/corpus").rmdir()
    assert not open_source(task, root=tmp_path).is_local
