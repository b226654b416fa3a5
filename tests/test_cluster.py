"""The work of a cluster without Ray: the real shards, workers, merge, schedule and kept shards, in one process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from cluster_here import remote
from encoders import SpellingEncoder, spell
from hypothesis import given, settings
from hypothesis import strategies as st
from mteb.timing import TimingStack
from mteb_models import OwnSearch, PairScorer, WordEncoder
from mteb_world import task_card, write_collection
from standin import ROOT

from crumb_tasks.cli import main
from crumb_tasks.cluster import shards
from crumb_tasks.cluster.jobs import Found
from crumb_tasks.cluster.merging import Merge
from crumb_tasks.cluster.patience import PatientEncoding
from crumb_tasks.cluster.places import Cluster, cpus_each, environment_of_workers
from crumb_tasks.cluster.schedule import TRIES, Schedule
from crumb_tasks.cluster.shards import Shard, cut, gaps, n_pieces, without_overlap
from crumb_tasks.cluster.states import Progress, WorkerLine
from crumb_tasks.cluster.view import View
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.runs import Run
from crumb_tasks.search import grid
from crumb_tasks.tasks import CardTask, task_class

QUIET = {"batch_size": 4, "show_progress_bar": False}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A grid, and shards, so small that a small corpus has many of both; returns the folder of `Mini`."""
    monkeypatch.setattr(grid, "BLOCK", 16)
    monkeypatch.setattr("crumb_tasks.search.candidates.BLOCK", 16)
    monkeypatch.setattr("crumb_tasks.search.embeddings.BLOCK", 16)
    monkeypatch.setitem(grid.TILE_BY_DEVICE, "cpu", (8, 8))
    monkeypatch.setattr(shards, "SMALL", 1)
    monkeypatch.setattr(shards, "PER_WORKER", 1)
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "test" / "mini"


def write_spelled(folder: Path, *, seed: int, n: int = 150, candidates: str = "") -> None:
    """Write passages whose vectors tie often, in documents that lie across the whole corpus.

    The last query has no candidates; those of the others are ``passages`` or ``documents``.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (n, 4))
    vectors[rng.integers(0, n, n // 3)] = vectors[0]  # the same passage in many places, at borders too
    ids = [f"p{number}" for number in rng.permutation(n)]
    corpus = {doc_id: spell(vector) for doc_id, vector in zip(ids, vectors, strict=True)}
    queries = {f"q{number}": spell(vector) for number, vector in enumerate(rng.integers(-2, 3, (11, 4)))}
    parents = {doc_id: f"d{rng.zipf(1.4) % 40}" for doc_id in ids}
    pool = sorted(set(parents.values())) if candidates == "documents" else ids
    some = {query: [pool[at] for at in rng.choice(len(pool), 12, replace=False)] for query in list(queries)[:-1]}
    qrels = {"test": {query: {ids[0]: 1, parents[ids[1]]: 1} for query in queries}}
    write_collection(
        folder,
        corpus=corpus,
        queries=queries,
        parents=parents,
        qrels=qrels,
        candidates=some if candidates else None,
    )


def card(*, max_passage: bool, candidates: bool = False, **changes: Any) -> Any:
    """Return the card of `Mini`."""
    options: dict[str, Any] = {"parent_field": "parent"} if max_passage else {}
    if candidates:
        options["candidates"] = "top_ranked.jsonl"
    allowed = {"documents": 100}
    return task_card(options=options, max_passage=max_passage, depth=20, dangling=allowed, **changes)


def ranked(model: Any, task_card: Any) -> Run:
    """Evaluate and return what was ranked."""
    task: CardTask = task_class(task_card)()
    task.load_data()
    task.evaluate(model, "test", encode_kwargs=dict(QUIET), timer=TimingStack())
    return task.outcomes["test"][0]


def rows(run: Run) -> list[tuple[Any, ...]]:
    """Return the run row by row: query, document, score, winning passage."""
    documents = run.documents.decode(run.codes).to_pylist()
    passages = documents
    if run.passages is not None and run.passage_codes is not None:
        passages = run.passages.decode(run.passage_codes).to_pylist()
    queries = [run.query_ids[at] for at in run.row_queries]
    return list(zip(queries, documents, run.scores.tolist(), passages, strict=True))


@pytest.mark.parametrize("n_workers", [1, 2, 5])
@pytest.mark.parametrize("kind", ["documents", "maximum", "candidates", "candidates, maximum"])
@pytest.mark.parametrize(("similarity", "seed"), [("dot", 0), ("dot", 1), ("euclidean", 2)])
def test_shards_give_the_run_of_one_process(small: Path, n_workers: int, seed: int, kind: str, similarity: str) -> None:
    """Bit for bit, whatever the number of workers and the order of answers: ties and documents lie across borders."""
    candidates, max_passage = "candidates" in kind, "maximum" in kind
    write_spelled(small, seed=seed, candidates="documents" if max_passage else "passages" if candidates else "")
    wanted = card(max_passage=max_passage, candidates=candidates)
    model, workers = remote(SpellingEncoder(similarity), n_workers)

    found = ranked(model, wanted)

    assert rows(found) == rows(ranked(SpellingEncoder(similarity), wanted))
    assert len(workers.shards) == n_workers
    assert all(shard.first % grid.BLOCK == 0 for shard in workers.shards)


@pytest.mark.parametrize("n_workers", [1, 3])
@pytest.mark.parametrize("max_passage", [False, True])
def test_cross_encoders_share_queries(small: Path, n_workers: int, *, max_passage: bool) -> None:
    """Candidates are scored query by query on different workers, with the result of one process."""
    write_spelled(small, seed=0, candidates="documents" if max_passage else "passages")
    wanted = card(max_passage=max_passage, candidates=True)
    model, workers = remote(PairScorer(), n_workers)

    found = ranked(model, wanted)

    assert rows(found) == rows(ranked(PairScorer(), wanted))
    assert len(workers.shards) == n_workers
    n_pairs = sum(shard.count for shard in workers.shards)
    assert n_pairs > 120 if max_passage else n_pairs == 120  # 10 queries have 12 candidates each


@pytest.mark.parametrize("max_passage", [False, True])
def test_models_with_their_own_search_are_asked_whole(small: Path, *, max_passage: bool) -> None:
    """BM25 needs the whole corpus for every score: one worker ranks it, and what it said about itself arrives."""
    write_spelled(small, seed=1)
    wanted = card(max_passage=max_passage)

    def score(query: str, document: str) -> float:
        return float((int(query[1:]) * 7 + int(document[1:]) * 3) % 11)

    model, workers = remote(OwnSearch(score), 4)

    assert rows(ranked(model, wanted)) == rows(ranked(OwnSearch(score), wanted))
    assert len(workers.shards) == 1


def test_a_cross_encoder_without_candidates_is_refused(small: Path) -> None:
    """As in one process, with the remedy."""
    write_spelled(small, seed=0)
    model, _ = remote(PairScorer(), 2)

    with pytest.raises(UsageError, match="--rerank"):
        ranked(model, card(max_passage=False))


def test_instructions_of_queries_reach_the_workers(small: Path) -> None:
    """Queries with different instructions are encoded in one call for each, as in one process."""
    write_collection(small, prompts={"q1": "first", "q2": "second", "q3": "first"})
    wanted = task_card(prompt={"from_data": True}, options={"prompt_field": "instruction"})
    plain, elsewhere = WordEncoder(), WordEncoder()

    found = ranked(remote(elsewhere, 1)[0], wanted)

    assert rows(found) == rows(ranked(plain, wanted))
    assert sorted(call[:2] for call in map(str, elsewhere.calls)) == sorted(call[:2] for call in map(str, plain.calls))


def test_tasks_of_mteb_are_ranked_as_mteb_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of MTEB's own is loaded by one worker and ranked by MTEB's own wrapper."""
    from counted_run import fill

    cls = type(mteb.get_task("PIQA"))
    monkeypatch.setattr(cls, "load_data", cls.load_data)  # put back afterwards
    fill("PIQA")

    def scores(model: Any) -> Any:
        found = mteb.evaluate(model, mteb.get_task("PIQA"), cache=None, encode_kwargs=dict(QUIET))  # type: ignore[arg-type]
        return found.task_results[0].scores

    assert scores(remote(WordEncoder(), 2)[0]) == scores(WordEncoder())


def test_a_later_run_goes_on_with_the_finished_shards(small: Path, tmp_path: Path) -> None:
    """Interrupted after two shards, a run with another number of workers does the others, to the same result."""
    write_spelled(small, seed=2)
    wanted = card(max_passage=True)
    model, first = remote(SpellingEncoder(), 5, keep_in=tmp_path / "kept", stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        ranked(model, wanted)

    model, second = remote(SpellingEncoder(), 3, keep_in=tmp_path / "kept")
    found = ranked(model, wanted)

    assert rows(found) == rows(ranked(SpellingEncoder(), wanted))
    done = [(shard.first, shard.stop) for shard in [*first.shards, *second.shards]]
    assert gaps(150, done) == []
    assert sorted(done) == without_overlap(done)
    model, third = remote(SpellingEncoder(), 1, keep_in=tmp_path / "kept")
    assert rows(ranked(model, wanted)) == rows(found)
    assert third.shards == []


@pytest.mark.parametrize("change", ["revision", "experiment", "depth", "queries", "corpus", "split", "encode"])
def test_what_decides_a_result_is_in_the_key(small: Path, tmp_path: Path, change: str) -> None:
    """A shard of another model, condition, depth, or of other texts is never taken for the one that is wanted."""
    write_spelled(small, seed=3)
    wanted = card(max_passage=False)
    kept = tmp_path / "kept"
    ranked(remote(SpellingEncoder(), 3, keep_in=kept)[0], wanted)
    encoder = SpellingEncoder(revision="2" if change == "revision" else "1")
    if change == "experiment":
        changes = {"experiment_kwargs": {"dtype": "float16"}}
        encoder.mteb_model_meta = encoder.mteb_model_meta.model_copy(update=changes)
    if change == "depth":
        wanted = wanted.model_copy(update={"depth": 21})
    if change == "split":
        (small / "qrels" / "validation.tsv").write_bytes((small / "qrels" / "test.tsv").read_bytes())
    if change in {"queries", "corpus"}:
        path = small / f"{change}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines()
        row = json.loads(lines[-1])
        lines[-1] = json.dumps(row | {"text": spell([1, 1, 1, 1.5])})
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    model, workers = remote(encoder, 3, keep_in=kept)
    task: CardTask = task_class(wanted)()
    task.load_data()
    kwargs = QUIET | ({"precision": "float32"} if change == "encode" else {})

    task.evaluate(model, "validation" if change == "split" else "test", encode_kwargs=kwargs, timer=TimingStack())

    assert len(workers.shards) == (1 if change == "corpus" else 3)  # only the shard with the text that was changed


def test_a_broken_kept_shard_is_done_again(small: Path, tmp_path: Path) -> None:
    """Half a file, which only another program can have left, costs its shard and nothing else."""
    write_spelled(small, seed=4)
    wanted = card(max_passage=False)
    ranked(remote(SpellingEncoder(), 3, keep_in=tmp_path)[0], wanted)
    path = next(tmp_path.rglob("*.npz"))
    path.write_bytes(path.read_bytes()[:100])

    model, workers = remote(SpellingEncoder(), 3, keep_in=tmp_path)

    assert rows(ranked(model, wanted)) == rows(ranked(SpellingEncoder(), wanted))
    assert len(workers.shards) == 1
    key = json.loads(next(tmp_path.rglob("key.json")).read_text(encoding="utf-8"))
    assert (key["task"], key["split"], key["model"], key["depth"]) == ("Mini", "test", "tests/spelling", 20)


def test_queries_of_a_cross_encoder_resume(small: Path, tmp_path: Path) -> None:
    """Finished ranges of queries are kept like ranges of a corpus."""
    write_spelled(small, seed=5, candidates="documents")
    wanted = card(max_passage=True, candidates=True)
    model, first = remote(PairScorer(), 4, keep_in=tmp_path, stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        ranked(model, wanted)

    model, second = remote(PairScorer(), 4, keep_in=tmp_path)

    assert rows(ranked(model, wanted)) == rows(ranked(PairScorer(), wanted))
    assert gaps(10, [(shard.first, shard.stop) for shard in [*first.shards, *second.shards]]) == []
    assert len(first.shards) == 2
    assert sum(map(len, [*first.shards, *second.shards])) == 10


def test_embeddings_are_shared_with_a_plain_run(small: Path, tmp_path: Path) -> None:
    """With --embeddings workers write the files that one process reads, and encode nothing that is there."""
    from crumb_tasks.search import EmbeddingStore

    write_spelled(small, seed=6)
    wanted = card(max_passage=True)
    encoder = SpellingEncoder()
    model, _ = remote(encoder, 3)
    model.embedding_store = EmbeddingStore(tmp_path)
    found = ranked(model, wanted)
    plain: Any = SpellingEncoder()
    plain.embedding_store = EmbeddingStore(tmp_path)

    assert rows(ranked(plain, wanted)) == rows(found)
    assert [kind for kind, *_ in plain.calls] == ["query"]


def test_other_data_on_a_worker_are_refused(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with another copy of the corpus does not rank it."""
    write_spelled(small, seed=7)
    wanted = card(max_passage=False)
    model, _ = remote(SpellingEncoder(), 2)
    task: CardTask = task_class(wanted)()
    task.load_data()
    write_spelled(tmp_path / "other" / "test" / "mini", seed=8)
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(tmp_path / "other"))

    with pytest.raises(DataError, match=r"rows \d+ to \d+ of the corpus on this worker are others"):
        task.evaluate(model, "test", encode_kwargs=QUIET, timer=TimingStack())


def test_queries_that_may_not_travel_stay(small: Path) -> None:
    """Queries decoded from an obfuscated release are not sent to other processes."""
    from dataclasses import replace

    write_spelled(small, seed=0)
    task: CardTask = task_class(card(max_passage=False))()
    task.load_data()
    task._collections["test"] = replace(task.collection("test"), in_memory_only=True)

    with pytest.raises(UsageError, match="run it without --ray"):
        task.evaluate(remote(SpellingEncoder(), 2)[0], "test", encode_kwargs=QUIET, timer=TimingStack())


class Hungry(SpellingEncoder):
    """An encoder that has memory for so many texts at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.sizes: list[int] = []

    def encode(self, inputs: Any, **kwargs: Any) -> Any:
        """Encode, or run out of memory."""
        self.sizes.append(kwargs["batch_size"])
        if kwargs["batch_size"] > self.most:
            raise RuntimeError("CUDA error: out of memory")
        return super().encode(inputs, **kwargs)


def test_a_batch_too_large_is_halved(small: Path) -> None:
    """Memory runs out at 4 texts: 2 and then 1 are tried, later calls begin with what fitted, and the user is told."""
    write_spelled(small, seed=0)
    wanted = card(max_passage=False)
    hungry = Hungry(1)
    model, _ = remote(hungry, 1)
    said: list[str] = []
    model.say = said.append

    assert rows(ranked(model, wanted)) == rows(ranked(SpellingEncoder(), wanted))
    assert hungry.sizes[:3] == [4, 2, 1]
    assert set(hungry.sizes[3:]) == {1}
    assert said == ["Mini: memory ran out; batches of 1 from then on"]


def test_other_errors_are_not_retried_smaller() -> None:
    """Only memory is a reason for smaller batches; a batch of one has no half."""
    from encoders import METADATA

    encoding = PatientEncoding(Hungry(0), METADATA, "test", "default", dict(QUIET), None)
    from encoders import queries_of

    with pytest.raises(RuntimeError, match="out of memory"):
        encoding.queries(queries_of([[1.0]], ["q"]), None)
    assert encoding.kwargs["batch_size"] == 1


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_cuts_are_balanced(sizes: list[int], pieces: int) -> None:
    """Ranges follow each other, cover everything, and none exceeds its share by more than one block."""
    found = cut(np.array(sizes), pieces)

    assert [first for first, _ in found] == [0, *(stop for _, stop in found[:-1])]
    assert found[-1][1] == len(sizes)
    assert len(found) <= pieces
    share = sum(sizes) / pieces
    assert all(sum(sizes[first:stop]) <= share + max(sizes) for first, stop in found)


@given(st.integers(0, 1 << 40), st.integers(1, 256))
def test_small_tasks_are_one_piece(size: int, n_workers: int) -> None:
    """Up to `SMALL` bytes a task is not cut; pieces of a larger one are between `SMALL` and `LARGE`, on average."""
    pieces = n_pieces(size, n_workers)

    assert pieces >= 1
    assert pieces == 1 or size / pieces >= shards.SMALL
    assert size / pieces <= shards.LARGE or size < 2 * shards.SMALL


@given(st.data())
@settings(max_examples=30)
def test_the_merge_of_any_parts_is_the_whole(data: st.DataObject) -> None:
    """Top documents of parts, each by maximum, give the top documents of all, equal scores included."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    n_rows, n_queries = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 5))
    depth = data.draw(st.sampled_from([1, 3, 100]))
    scores = rng.integers(-3, 4, (n_queries, n_rows)).astype(np.float32)
    ordinals = rng.permutation(n_rows).astype(np.int32)
    parents = np.sort(rng.integers(0, n_rows, n_rows)).astype(np.int32) if data.draw(st.booleans()) else None
    bounds = np.unique([0, n_rows, *rng.integers(0, n_rows, data.draw(st.integers(0, 5)))])

    def best(first: int, stop: int) -> list[list[tuple[float, int, int]]]:
        found = []
        for query in range(n_queries):
            keys = sorted((float(scores[query, row]), int(ordinals[row]), row) for row in range(first, stop))[::-1]
            seen: set[int] = set()
            kept = [
                key
                for key in keys
                if parents is None or not (int(parents[key[1]]) in seen or seen.add(int(parents[key[1]])))
            ]
            found.append(kept[:depth])
        return found

    merge = Merge(n_queries, depth, ordinals=ordinals, parent_by_ordinal=parents)
    parts = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    for first, stop in rng.permutation(parts).tolist():
        merge.add(found_of(best(first, stop)))
    merged = merge.ranked()

    expected = [key[1] for ranking in best(0, n_rows) for key in ranking]
    assert (merged.keys & 0xFFFFFFFF).tolist() == expected


def found_of(rankings: Sequence[Sequence[tuple[float, int, int]]]) -> Found:
    """Return rankings of (score, ordinal, row) as a worker sends them."""
    offsets = np.cumsum([0, *map(len, rankings)])
    flat = [key for ranking in rankings for key in ranking]
    scores = np.array([key[0] for key in flat], dtype=np.float32)
    return Found(offsets, np.array([key[2] for key in flat], dtype=np.int32), scores)


def some_shards(count: int, size: int = 10) -> list[Shard]:
    """Return shards of equal size."""
    return [Shard(at, at + 1, size, 1) for at in range(count)]


def test_every_shard_is_done_once_though_workers_are_lost() -> None:
    """Workers are lost at random, at most twice with the same shard: each shard is finished exactly once."""
    rng = np.random.default_rng(0)
    schedule = Schedule()
    schedule.add(0, some_shards(50))
    schedule.add(1, some_shards(30))
    finished: list[tuple[int, int]] = []
    while schedule.n_waiting or schedule.running:
        for worker in range(7):
            if worker not in schedule.running:
                schedule.take(worker, 7)
        worker = int(rng.choice(list(schedule.running)))
        job = schedule.running[worker]
        if job.n_tried < TRIES - 1 and rng.random() < 0.3:
            assert schedule.lose(worker) is None
        else:
            schedule.finish(worker)
            finished.append((job.search, job.shard.first))

    assert sorted(finished) == [(0, at) for at in range(50)] + [(1, at) for at in range(30)]


def test_a_shard_that_fails_goes_to_another_worker_and_is_given_up_in_the_end() -> None:
    """The third failure is the last, and while there is another worker the one that failed is not asked again."""
    schedule = Schedule()
    schedule.add(0, some_shards(1))
    first = schedule.take(1, 2)
    assert first is not None
    assert schedule.lose(1) is None

    assert schedule.take(1, 2) is None
    assert schedule.take(2, 2) is first
    assert schedule.lose(2) is None
    assert schedule.take(2, 1) is first, "the only worker that is left gets it"
    assert schedule.lose(2) is first
    assert schedule.n_waiting == 0


def test_the_largest_shard_comes_first_and_a_worker_stays_with_its_search() -> None:
    """What takes longest is begun first; a collection that is open is used before another is opened."""
    schedule = Schedule()
    schedule.add(0, [Shard(0, 1, 5, 1), Shard(1, 2, 50, 1)])
    schedule.add(1, [Shard(0, 1, 500, 1), Shard(1, 2, 500, 1)])

    order = []
    for worker in (1, 2, 3, 1):
        schedule.running.pop(worker, None)
        job = schedule.take(worker, 3)
        assert job is not None
        order.append((job.search, job.shard.size))

    assert order == [(0, 50), (0, 5), (1, 500), (1, 500)]


@pytest.mark.parametrize(
    ("cpus", "n_workers", "share"),
    [([2], 2, 1), ([2], 1, 2), ([4, 4], 1, 4), ([4, 4], 3, 2), ([8], 3, 2), ([2], 8, 0.125), ([3, 1], 2, 1)],
)
def test_workers_get_processors_that_exist(cpus: list[float], n_workers: int, share: float) -> None:
    """As many as all workers find a place with: more would leave some waiting for ever."""
    assert cpus_each(cpus, n_workers) == share


def test_workers_get_paths_and_switches_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where data are is sent, absolutely; a token is not."""
    monkeypatch.chdir(tmp_path)

    found = environment_of_workers({"CRUMB_TASKS_DATA": "data", "HF_TOKEN": "secret", "HF_HUB_OFFLINE": "1"})

    assert found == {"CRUMB_TASKS_DATA": str(tmp_path / "data"), "HF_HUB_OFFLINE": "1"}
    assert environment_of_workers({}, Path("other")) == {"CRUMB_TASKS_DATA": str(tmp_path / "other")}
    assert environment_of_workers({}) == {}


def test_the_view_says_pace_rest_and_workers() -> None:
    """Plain lines hold documents per second over all workers, the time left, and what each worker does."""
    stream = io.StringIO()
    view = View(stream, 3, {"B": 500, "C": 500})
    progress = Progress(
        done=600,
        total=1000,
        encoded=400,
        seconds=4.0,
        workers=[WorkerLine(1, "node, pid 7", "A 0 to 1,000", 100, 1000), WorkerLine(2, doing="starting")],
    )

    view.start("A", 1000, 10)

    assert view.line(progress) == "0 of 3 tasks, 600/1,000 documents, 100 documents/s, 14 s left"
    assert list(map(str, progress.workers)) == [
        "worker 1 (node, pid 7): A 0 to 1,000 100/1,000",
        "worker 2: starting",
    ]
    view.finish("ndcg_at_10 0.5000")
    assert stream.getvalue().splitlines()[0] == "[1/3] A: 1,000 documents, 10 queries"
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--workers", "2"], "--workers are for a cluster; name it with --ray"),
        (["--resume", "kept"], "--resume are for a cluster"),
        (["--ray", "local", "--workers", "0"], "--workers must be 1 or more"),
        (["--ray", "local", "--gpus-per-worker", "-1"], "--gpus-per-worker must be a part of one GPU"),
        (["--ray", "local", "--gpus-per-worker", "1.5"], "or a whole number, not 1.5"),
        (["--ray", "local", "--cost"], "--cost measures a model in this process; run it without --ray"),
    ],
)
def test_misuse_is_one_line(capsys: pytest.CaptureFixture[str], options: list[str], complaint: str) -> None:
    """What cannot be meant is refused before anything is loaded."""
    assert main(["run", "mteb/baseline-random-encoder", "-t", "CRUMBSampleLegalQA", *options]) == 2
    assert complaint in capsys.readouterr().err


def test_without_ray_the_command_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray is an extra."""
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ray", None)

    code = main(["run", "mteb/baseline-random-encoder", "-t", "CRUMBSampleLegalQA", "--ray", "local"])

    assert code == 2
    assert "pip install 'crumb-tasks[ray]'" in capsys.readouterr().err


@pytest.mark.parametrize("n_workers", [1, 7, 256])
@pytest.mark.parametrize("max_passage", [False, True])
def test_a_simulated_cluster_finishes_every_shard(n_workers: int, *, max_passage: bool) -> None:
    """The real schedule and merge on generated answers, a third of them lost: nothing is missing or there twice."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from cluster_simulation import simulate

    found = simulate(300_000, n_workers, n_queries=5, depth=50, max_passage=max_passage, lost=0.3)

    assert found.n_lost > 0
    assert found.hours >= found.ideal_hours
    assert found.traffic == found.n_shards * (5 * 50 * (4 + 4) + 6 * 8)
    assert np.diff(found.ranked.offsets).tolist() == [50] * 5
    documents = (found.ranked.keys & 0xFFFFFFFF).reshape(5, 50) // (6 if max_passage else 1)
    assert all(len(set(of_query)) == 50 for of_query in documents.tolist())
    assert (np.diff(found.ranked.keys.reshape(5, 50), axis=1) < 0).all()


@pytest.mark.parametrize(
    ("address", "reason"),
    [("127.0.0.1:1", "nothing listens there"), ("ray://[::1]:1", "nothing listens there"), ("nowhere", "HOST:PORT")],
)
def test_a_wrong_address_is_said_at_once(address: str, reason: str) -> None:
    """Ray would ask a port where nothing listens for minutes."""
    pytest.importorskip("ray")

    with pytest.raises(UsageError, match=reason):
        Cluster.join(address, None, None)
