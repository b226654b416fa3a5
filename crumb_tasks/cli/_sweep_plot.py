"""The plot of a sweep: what speed of search costs in agreement with exact search, and in quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crumb_tasks.cli._plots import save_figure

_MARKERS = ("*", "o", "s", "^", "D", "v", "P", "X", "p", "<", ">")
_PANELS = (("ann_recall@10", "ann_recall@10 (agreement with exact)"), ("nDCG@10", "nDCG@10"))
_SPEED = "batch_queries_per_second"
_HEIGHT = 3.4


def draw(sweeps: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the figure, a row of panels for each task; errors as `save_figure`."""

    def paint(figure: Any) -> None:
        rows = figure.subplots(len(sweeps), 2, squeeze=False)
        for axes_of_task, content in zip(rows, sweeps, strict=True):
            for axes, (key, label) in zip(axes_of_task, _PANELS, strict=True):
                _paint_panel(axes, content, key)
                axes.set_xlabel("queries/s in batches (median, lowest to highest)", fontsize=8)
                axes.set_ylabel(label, fontsize=8)
                axes.set_title(f"{content['task']}, {content['documents']:,} documents", fontsize=9)
        handles, labels = rows[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)

    save_figure(paint, path, height=_HEIGHT * len(sweeps) + 0.6)


def _paint_panel(axes: Any, content: dict[str, Any], key: str) -> None:
    families = list(dict.fromkeys(point["family"] for point in content["points"]))
    for number, family in enumerate(families):
        points = [
            (point["values"][_SPEED], point["values"][key]["value"])
            for point in content["points"]
            if point["family"] == family
            and point["values"][_SPEED]["value"] is not None
            and point["values"][key]["value"] is not None
        ]
        if not points:
            continue
        across = [speed["value"] for speed, _ in points]
        up = [value for _, value in points]
        spread = [
            [speed["value"] - speed["spread"][0] for speed, _ in points],
            [speed["spread"][1] - speed["value"] for speed, _ in points],
        ]
        axes.errorbar(
            across,
            up,
            xerr=spread,
            marker=_MARKERS[number % len(_MARKERS)],
            color=f"C{number % 10}",
            linewidth=0.8,
            elinewidth=0.6,
            markersize=5,
            label=family,
        )
    _scale_by_decades(axes.xaxis)
    axes.grid(linewidth=0.4)


def _scale_by_decades(axis: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.axes.set_xscale("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=8))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.axes.tick_params(labelsize=8)
