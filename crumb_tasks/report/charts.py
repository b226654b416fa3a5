"""Charts as SVG that stands inside the page: its text is text, its colours are the page's, light or dark."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crumb_tasks.errors import MissingExtraError
from crumb_tasks.report.costs import front_label, fronts
from crumb_tasks.report.ranking import Ranking
from crumb_tasks.report.results import System

MOST_MARKED: Final = 8
"""Systems with a colour and a shape of their own."""

_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "p")
_SERIES: Final = tuple(f"#a1000{number}" for number in range(MOST_MARKED))
_INK, _LINE, _OTHERS = "#a1000d", "#a1000e", "#a1000f"
_VARIABLES: Final = {
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES)},
    _INK: "currentColor",
    _LINE: "var(--line)",
    _OTHERS: "var(--others)",
}
"""Colours that matplotlib writes, which no chart would have by chance → what the page's style sheet makes of them."""
_WIDTH: Final = 4.0  # inches: at the width of a phone its text is as large as the page's small print

_TIME: Final = (
    "Seconds as MTEB wrote them, all members together, encoding of the corpus included. Machines and batch sizes may "
    "differ from result to result. On the line nothing is both faster and better."
)

_FRONT: Final = (
    "Mean over the members. On the line nothing is both cheaper and better; axes of cost are never added up."
)

_JUST_ABOVE_ONE: Final = 1.02
"""Where axes of values up to 1 end, so that a marker at 1 is whole."""

Point = tuple[System, float, float]


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        title: What it shows.
        caption: How to read it.
        svg: The drawing.
        marked: The systems that have colours, in the order of the colours.
    """

    title: str
    caption: str
    svg: str
    marked: tuple[System, ...]


def draw_charts(ranking: Ranking, marked: Sequence[System]) -> list[Chart]:
    """Return the charts that the results have values for.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    return [chart for chart in (_profile(ranking, marked), *_scatters(ranking, marked)) if chart is not None]


def _profile(ranking: Ranking, marked: Sequence[System]) -> Chart | None:
    """Draw each task's values as points on its line."""
    tasks = [task for task in ranking.members if any(row.value_by_member[task] is not None for row in ranking.rows)]
    if len(tasks) < 2:
        return None

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for row in ranking.rows:
            if row.system not in marked:
                points = [(row.value_by_member[task], at) for at, task in enumerate(tasks)]
                _scatter(axes, points, color=_OTHERS, marker="|", s=30, linewidths=0.9)
        for number, system in enumerate(marked):
            values = next(row.value_by_member for row in ranking.rows if row.system == system)
            points = [(values[task], at) for at, task in enumerate(tasks)]
            _scatter(axes, points, color=_SERIES[number], marker=_MARKERS[number], s=30, linewidths=0, zorder=3)
        axes.set_yticks(range(len(tasks)), _without_shared_start(tasks))
        axes.set_ylim(len(tasks) - 0.5, -0.5)
        axes.set_xlabel(ranking.aggregate.measured)
        axes.grid(axis="y", color=_LINE, linewidth=0.8)

    others = " Grey strokes are the other systems." if len(ranking.rows) > len(marked) else ""
    caption = f"{ranking.aggregate.measured} on each task; a task without a point has no result.{others}"
    return Chart("Profile over the tasks", caption, _svg(paint, 0.27 * len(tasks) + 0.7, "profile"), tuple(marked))


def _scatter(axes: Any, points: Iterable[tuple[float | None, float | None]], **style: Any) -> None:
    known = [(x, y) for x, y in points if x is not None and y is not None]
    if known:
        axes.scatter(*zip(*known, strict=True), **style)


def _without_shared_start(names: Sequence[str]) -> list[str]:
    """Return task names without the benchmark's name that all begin with."""
    start = names[0]
    while start and not all(name.startswith(start) and name[len(start) : len(start) + 1].isupper() for name in names):
        start = start[:-1]
    return [name[len(start) :] for name in names]


def _scatters(ranking: Ranking, marked: Sequence[System]) -> Iterator[Chart | None]:
    measure = ranking.aggregate.measured
    quality: dict[System, float | None] = {row.system: row.value for row in ranking.rows}
    mean = "" if len(ranking.aggregate.task_names) == 1 else f", {ranking.aggregate.reduction.mean} mean"
    ndcg, recall = (_by_system(ranking, key) for key in ("ndcg_at_10", "recall_at_100"))
    yield _against(
        ("nDCG@10 against Recall@100", "Recall@100: is it found at all? nDCG@10: does it stand on top?"),
        (f"R@100{mean}", f"nDCG@10{mean}"),
        _points(recall, ndcg),
        marked,
    )
    yield _against(
        (
            "Robustness against nDCG",
            "Robustness takes the worst of each query's variants; the dashed line is equality.",
        ),
        (f"nDCG@10{mean}", f"Robustness@10{mean}"),
        _points(ndcg, _by_system(ranking, "robustness_at_10")),
        marked,
        diagonal=True,
    )
    for front in fronts(ranking):
        where = f" Measured on {front.machine}." if front.machine else ""
        yield _against(
            (f"Quality against {front.axis.title}", f"Paid {front.axis.recurs}.{where} {_FRONT}"),
            (front_label(front.axis), f"{measure}{mean}"),
            list(front.points),
            marked,
            is_cost=True,
        )
    yield _against(
        ("Quality against evaluation time", _TIME),
        ("seconds for all members", f"{measure}{mean}"),
        _points(_seconds(ranking), quality),
        marked,
        is_cost=True,
    )


def _by_system(ranking: Ranking, key: str) -> dict[System, float | None]:
    return {row.system: ranking.reduced(row.system, key) for row in ranking.rows}


def _seconds(ranking: Ranking) -> dict[System, float | None]:
    found: dict[System, float | None] = {}
    for system, results in ranking.results.items():
        seconds = [results[task].seconds if task in results else None for task in ranking.aggregate.task_names]
        known = [value for value in seconds if value is not None and value > 0]
        found[system] = sum(known) if len(known) == len(seconds) else None
    return found


def _points(x: Mapping[System, float | None], y: Mapping[System, float | None]) -> list[Point]:
    return [
        (system, across, up) for system in y if (across := x.get(system)) is not None and (up := y[system]) is not None
    ]


def _against(
    words: tuple[str, str],
    labels: tuple[str, str],
    points: Sequence[Point],
    marked: Sequence[System],
    *,
    diagonal: bool = False,
    is_cost: bool = False,
) -> Chart | None:
    if not points:
        return None

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        others = [(x, y) for system, x, y in points if system not in marked]
        _scatter(axes, others, color=_OTHERS, marker="o", s=12, linewidths=0)
        for system, x, y in points:
            if system in marked:
                number = marked.index(system)
                _scatter(axes, [(x, y)], color=_SERIES[number], marker=_MARKERS[number], s=46, linewidths=0, zorder=3)
        if diagonal:
            axes.axline((0, 0), slope=1, color=_INK, linewidth=0.8, linestyle="--")
        axes.set_xlabel(labels[0])
        if is_cost:
            _paint_cost(axes, [(x, y) for _, x, y in points])
        axes.set_ylabel(labels[1])
        axes.margins(0.08)
        if diagonal:
            axes.set(xlim=(0, 1), ylim=(0, 1))
        elif all(up <= 1 for _, _, up in points):
            axes.set_ylim(top=min(axes.get_ylim()[1], _JUST_ABOVE_ONE))
        if not is_cost and all(across <= 1 for _, across, _ in points):
            axes.set_xlim(right=min(axes.get_xlim()[1], _JUST_ABOVE_ONE))
        axes.grid(color=_LINE, linewidth=0.6)

    shown = tuple(system for system in marked if any(system == other for other, _, _ in points))
    return Chart(words[0], words[1], _svg(paint, 2.8, words[0]), shown)


def _paint_cost(axes: Any, points: Sequence[tuple[float, float]]) -> None:
    """Scale the axis of cost and draw the front."""
    if all(cost > 0 for cost, _ in points):  # BM25 has no parameter
        _scale_by_decades(axes.xaxis)
        axes.set_xlabel(f"{axes.get_xlabel()}, logarithmic")
    axes.step(*zip(*pareto_front(points), strict=True), where="post", color=_INK, linewidth=0.8)


def _scale_by_decades(axis: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.axes.set_xscale("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=8))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def pareto_front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other one beats in both cost (less is better) and quality, cheapest first."""
    front: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or quality > front[-1][1]:
            front.append((cost, quality))
    return front


def _svg(paint: Callable[[Any], None], height: float, salt: str) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a report as .html", "report") from error
    style: Any = {
        "axes.edgecolor": _LINE,
        "axes.labelcolor": _INK,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.axisbelow": True,
        "font.size": 8.5,
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "text.color": _INK,
        "text.parse_math": False,  # a dollar in a name is a dollar
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    image = io.StringIO()
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's browser has the font
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        figure.patch.set_visible(False)
        paint(figure)
        for axes in figure.axes:
            axes.patch.set_visible(False)
            axes.tick_params(length=0)
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _for_a_page(image.getvalue())


def _for_a_page(svg: str) -> str:
    """Return the drawing without prologue and ids of groups, in the page's colours and font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--font)", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg.strip()
