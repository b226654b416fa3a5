"""The files in ``leaderboard/`` of a cache: one for MTEB's leaderboard, one for each benchmark for its API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow.parquet as pq
from mteb.cache import ResultCache

from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.files import written_whole
from crumb_tasks.leaderboard.frames import complete_frame, frames_of_benchmarks, numbered, without_experiments
from crumb_tasks.leaderboard.reading import read_local_results
from crumb_tasks.mteb_compat import EXPERIMENT_COLUMN, ApiFiles, api_files, single_scores
from crumb_tasks.plugin import registered

if TYPE_CHECKING:
    import polars as pl

_MARK = "written_by"


@dataclass(frozen=True)
class Prepared:
    """What stands in the files.

    Attributes:
        folder: Where they are.
        rows_by_benchmark: For each benchmark of this package with results how many rows it has, a row being a model
            under a condition.
        others: Names of MTEB's own benchmarks that have results, as far as its leaderboard knows.
        has_api: Whether the API's files were written, too; without the extra ``leaderboard`` they are not.
        left_out: Results that are not in the files, one line each.
    """

    folder: Path
    rows_by_benchmark: Mapping[str, int]
    others: tuple[str, ...]
    has_api: bool
    left_out: tuple[str, ...]


def prepare(root: Path) -> Prepared:
    """Write the files that MTEB's leaderboard and API read, from the results in the cache ``root`` alone.

    Args:
        root: MTEB's cache.

    Raises:
        DataError: Nothing can be shown, or the files that are there are MTEB's own.
        UsageError: The files cannot be written.
    """
    target = ResultCache(root).leaderboard_parquet_path
    files = api_files()
    _refuse_files_of_mteb(target, files)
    local = read_local_results(root)
    frame = complete_frame(local.results)
    of_benchmarks = {name: of for name, of in frames_of_benchmarks(frame).items() if _n_rows(of)}
    try:
        if files is not None:
            _write_api_files(target, files, of_benchmarks, single_scores(without_experiments(frame)))
        _write(numbered(frame), target)
    except OSError as error:
        raise UsageError(
            f"cannot write to {target.parent} ({error.strerror or error}); copy {root} to where you may write"
        ) from error
    return Prepared(
        folder=target.parent,
        rows_by_benchmark={name: _n_rows(of) for name, of in of_benchmarks.items() if name in registered.benchmarks},
        others=tuple(name for name in of_benchmarks if name not in registered.benchmarks),
        has_api=files is not None,
        left_out=local.left_out,
    )


def _n_rows(frame: pl.DataFrame) -> int:
    scored = numbered(frame.drop_nulls("score"))
    return scored.select("model_name", EXPERIMENT_COLUMN).n_unique()


def _refuse_files_of_mteb(target: Path, files: ApiFiles | None) -> None:
    """Leave alone what MTEB wrote: it may hold the results of everybody else, which took an hour to fetch."""
    if target.exists() and EXPERIMENT_COLUMN not in pq.read_schema(target).names:
        raise DataError(f"{target} was written by MTEB; move it away if these results shall be shown instead")
    if files is None:
        return
    manifest = target.parent / files.manifest
    if manifest.is_file() and _MARK not in manifest.read_text(encoding="utf-8"):
        raise DataError(f"{manifest} was written by MTEB's API; move its folder away if these results shall be shown")


def _write_api_files(
    target: Path, files: ApiFiles, of_benchmarks: Mapping[str, pl.DataFrame], scores: pl.DataFrame
) -> None:
    """Write what MTEB's API reads: it takes the files only with the manifest, which goes first and comes last."""
    folder = target.parent
    earlier = _files_of(folder / files.manifest)
    (folder / files.manifest).unlink(missing_ok=True)
    for name in earlier:
        (folder / name).unlink(missing_ok=True)
    frames = {f"{quote(name, safe='')}.parquet": frame for name, frame in of_benchmarks.items()}
    frames[files.all_scores] = scores
    for name, frame in frames.items():
        _write(frame, folder / name)
    manifest = {
        "repo_id": files.repository,
        "sha": None,
        "schema_version": files.version,
        _MARK: "crumb_tasks",
        "files": sorted(frames),
    }
    with written_whole(folder / files.manifest) as file:
        file.write(json.dumps(manifest).encode("utf-8"))


def _files_of(manifest: Path) -> list[str]:
    """Return the names of the files that an earlier call wrote beside the manifest."""
    if not manifest.is_file():
        return []
    names = json.loads(manifest.read_text(encoding="utf-8")).get("files", [])
    return [name for name in names if Path(name).name == name]


def _write(frame: pl.DataFrame, path: Path) -> None:
    with written_whole(path) as file:
        frame.write_parquet(file)
