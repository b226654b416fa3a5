from __future__ import annotations

import itertools

import numpy as np
import pytest
from tiny import card, collection

from crumb_tasks.comparison import bootstrap_interval, compare, holm, randomisation_test
from crumb_tasks.errors import UsageError
from crumb_tasks.scoring import Scores, score

GRADES = {f"q{number}": {"a": 1, "b": 0} for number in range(12)}


def run_with(*good: int) -> Scores:
    """Return the scores of a run that has the relevant document first for these queries, and second for the others."""
    run = {f"q{number}": {"a": 2.0 if number in good else 0.0, "b": 1.0} for number in range(12)}
    return score(run, collection(GRADES), measures=["RR", "nDCG@10"])


def test_wins_losses_and_the_queries_that_moved_are_counted() -> None:
    """One run against another: who wins where, and which queries moved most."""
    (result,) = compare({"base": run_with(0, 1), "new": run_with(1, 2, 3)}, "RR")

    assert (result.first, result.second, result.measure, result.n_queries) == ("base", "new", "RR", 12)
    assert (result.n_wins, result.n_losses, result.n_ties) == (2, 1, 9)
    assert result.difference == pytest.approx(result.mean_second - result.mean_first) == pytest.approx(0.5 / 12)
    assert [(moved.query_id, moved.difference) for moved in result.moved] == [("q0", -0.5), ("q2", 0.5), ("q3", 0.5)]
    assert result.low <= result.difference <= result.high


def test_only_the_most_moved_queries_are_named() -> None:
    """Ten by default, largest first and then by id, so that the list is the same on every machine."""
    (result,) = compare({"none": run_with(), "all": run_with(*range(12))}, "nDCG@10")

    assert len(result.moved) == 10
    assert [moved.query_id for moved in result.moved] == sorted(GRADES)[:10]


def test_the_randomisation_test_counts_exchanges() -> None:
    """With few queries all exchanges are tried: the p-value is a plain count."""
    first, second = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([0.4, 0.3, 0.35, 0.9, 0.45])
    difference = second - first
    signs = np.array(list(itertools.product([1, -1], repeat=5)))
    sums = np.abs(signs @ difference)
    expected = float((sums >= abs(difference.sum()) - 1e-12).mean())

    assert randomisation_test(first, second) == pytest.approx(expected)
    assert randomisation_test(second, first) == pytest.approx(expected)


def test_one_query_that_differs_shows_nothing() -> None:
    """Both exchanges of one query have the same absolute difference: p is 1, with one query or among many."""
    (among_many,) = compare({"a": run_with(), "b": run_with(1)}, "RR")
    single = {
        name: score({"q0": ranked}, collection({"q0": GRADES["q0"]}), measures=["RR"])
        for name, ranked in (("a", {"a": 1.0, "b": 0.0}), ("b", {"a": 0.0, "b": 1.0}))
    }
    (alone,) = compare(single, "RR")

    assert (among_many.p_value, among_many.n_wins) == (1.0, 1)
    assert (alone.p_value, alone.n_losses, alone.low, alone.high) == (1.0, 1, -0.5, -0.5)


def test_equal_runs_do_not_differ() -> None:
    """No difference: p is 1 and the interval is a point."""
    (result,) = compare({"a": run_with(1), "b": run_with(1)}, "RR")

    assert (result.p_value, result.low, result.high, result.n_ties) == (1.0, 0.0, 0.0, 12)


def test_the_same_input_gives_the_same_numbers() -> None:
    """Random exchanges and resamples start from a fixed seed."""
    random = np.random.default_rng(0)
    first, second = random.random(200), random.random(200)

    assert randomisation_test(first, second) == randomisation_test(first, second)
    assert bootstrap_interval(second - first) == bootstrap_interval(second - first)


def test_a_real_difference_is_found_and_noise_is_not() -> None:
    """On 200 queries a shift of .1 is significant, and two samples of one distribution are not."""
    random = np.random.default_rng(1)
    first = random.random(200)

    assert randomisation_test(first, first + 0.1 + random.normal(0, 0.1, 200)) < 0.001
    assert randomisation_test(first, first + random.normal(0, 0.1, 200)) > 0.05


def test_the_bootstrap_interval_is_that_of_a_mean() -> None:
    """For many queries it is the mean plus and minus 1.96 standard errors, nearly."""
    difference = np.random.default_rng(2).normal(0.05, 0.2, 2000)
    low, high = bootstrap_interval(difference)
    error = difference.std() / np.sqrt(2000)

    assert low == pytest.approx(difference.mean() - 1.96 * error, abs=error / 4)
    assert high == pytest.approx(difference.mean() + 1.96 * error, abs=error / 4)


def test_holm_multiplies_and_never_falls() -> None:
    """Holm 1979: the smallest times n, the next times n - 1, each at least its predecessor, at most 1."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_several_runs_are_compared_in_pairs_and_corrected_together() -> None:
    """Three runs are three comparisons; the corrected values are Holm's over these three."""
    results = compare({"a": run_with(), "b": run_with(0, 1, 2, 3, 4, 5), "c": run_with(*range(12))}, "RR")

    assert [(result.first, result.second) for result in results] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [result.p_holm for result in results] == pytest.approx(holm([result.p_value for result in results]))


def test_what_cannot_be_compared_is_refused() -> None:
    """One run, another task, a measure that was not computed: each is one line that says so."""
    other = score({"q0": {"a": 1.0}}, collection({"q0": {"a": 1}}), measures=["RR"])

    with pytest.raises(UsageError, match="at least two runs"):
        compare({"a": run_with()}, "RR")
    with pytest.raises(UsageError, match="compared on the same queries"):
        compare({"a": run_with(), "b": other}, "RR")
    with pytest.raises(UsageError, match="AP was not computed"):
        compare({"a": run_with(), "b": run_with()}, "AP")
    groups = dict.fromkeys(GRADES, "g")
    grouped = score({"q0": {"a": 1.0}}, collection(GRADES, groups=groups), measures=["Robustness@10"], depth=10)
    with pytest.raises(UsageError, match="Robustness@10 has no values per query"):
        compare({"a": grouped, "b": grouped}, "Robustness@10")


def test_a_mean_over_parts_is_compared_as_one() -> None:
    """Ten queries of one part count as much as two of the other: means are scoring's, and the test follows them."""
    rng = np.random.default_rng(4)
    queries = [f"q{at:02}" for at in range(12)]
    labels = {"set": {query: "small" if at < 2 else "large" for at, query in enumerate(queries)}}
    graded = {query: {"right": 1} for query in queries}
    whole = collection(graded, ["right", "wrong"], query_labels=labels)
    task = card(main_measure="RR", mean_over="set")
    one, other = (
        score({query: {"right": 1.0, "wrong": 2.0 * (rng.random() < bad)} for query in queries}, whole, task)
        for bad in (0.2, 0.7)
    )
    (found,) = compare({"one": one, "other": other}, "RR")
    weights = np.array([1 / 4] * 2 + [1 / 20] * 10)
    moved = (other.per_query["RR"] - one.per_query["RR"]) * weights
    signs = np.array(list(itertools.product((1, -1), repeat=12)))

    assert one.weights == pytest.approx(weights)
    assert (found.mean_first, found.mean_second) == (one.value("RR"), other.value("RR"))
    assert found.difference == pytest.approx(moved.sum())
    assert found.difference != pytest.approx(np.mean(other.per_query["RR"] - one.per_query["RR"]))
    assert found.p_value == pytest.approx(np.mean(np.abs(signs @ moved) >= abs(moved.sum()) - 1e-12))
    assert found.low <= found.difference <= found.high
