"""MTEB's own leaderboard and API, unmodified and without network, in a real browser: they say what the files say.

They need the extra ``test-leaderboard`` and a Chromium; without them every test is skipped and says what is missing.
``CRUMB_TASKS_SCREENSHOTS`` names a folder for pictures of what was looked at.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import mteb
import pytest
from mteb.cache import ResultCache
from mteb.models.model_implementations import MODEL_REGISTRY

from crumb_tasks import register
from crumb_tasks.benchmarks import CardBenchmark
from crumb_tasks.cli import main

register()
pytestmark = pytest.mark.slow

NEEDED = ("gradio", "fastapi", "playwright", "bm25s")
SHOWN = {
    "CRUMBSample": "CRUMB sample",
    "InstructIRSample": "InstructIR sample",
    "RAR-b (geometric)": "RAR-b, geometric mean",
}
"""Benchmarks of this package that have results here, with what their buttons say."""

PATIENCE = 240
"""Seconds for a server or a page to answer."""


def _missing() -> list[str]:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return missing if _chromium() else [*missing, "Chromium"]


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for everything that commands write outside of the cache."""
    if missing := _missing():
        pytest.skip(f"not installed: {', '.join(missing)}")
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def root(home: Path) -> Iterator[Path]:
    """A cache with what real runs wrote, and the real results of forty models on RAR-b where they are at hand."""
    from tiny_models import write_static_model

    cache, model = home / "cache", write_static_model(home / "static")
    registry, handlers = dict(MODEL_REGISTRY), logging.root.handlers[:]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _environment(home).items():
            patch.setenv(name, value)
        for arguments in (
            ("mteb/baseline-bm25s",),
            (str(model), "--name", "me/static"),
            (str(model), "--name", "me/static", "--instructions", "prepended"),
        ):
            run = ["run", *arguments, "-t", "CRUMBSample", "InstructIRSample", "--output-folder", str(cache)]
            assert main(run) == 0
        shared = Path(os.environ.get("CRUMB_TASKS_SHARED") or Path(__file__).parents[2] / "shared" / "data")
        if (shared / "mteb_results").is_dir():
            shutil.copytree(shared / "mteb_results" / "results", cache / "results", dirs_exist_ok=True)
        assert main(["leaderboard", str(cache), "--prepare-only"]) == 0
        yield cache
    MODEL_REGISTRY.clear()
    MODEL_REGISTRY.update(registry)
    logging.root.handlers[:] = handlers


def _environment(home: Path) -> dict[str, str]:
    """Return what keeps commands away from the user's models and caches, and from any network."""
    return {
        "CRUMB_TASKS_MODELS": str(home / "models.json"),
        "CRUMB_TASKS_CACHE": str(home / "crumb_tasks"),
        "HF_HUB_OFFLINE": "1",
    }


@contextmanager
def _served(home: Path, command: list[str], address: str, **environment: str) -> Iterator[Path]:
    """Start a server, wait until it answers, and end it; what it wrote is in the file that this hands out."""
    log = home / f"{Path(command[0]).name}-{command[-1].replace('/', '_')}.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            env=os.environ | _environment(home) | environment,
            cwd=home,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(process, address, log)
            yield log
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"no answer from {address}:\n{log.read_text(encoding='utf-8')[-4000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


Row = tuple[int, str, float]


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[str, list[Row]]:
    """By benchmark the rank, model and value of each row, from `get_score`; equal values in their names' order."""
    found = {}
    for name in SHOWN:
        benchmark = mteb.get_benchmark(name)
        assert isinstance(benchmark, CardBenchmark)
        results = ResultCache(root).load_results(
            tasks=benchmark, include_remote=False, require_model_meta=False, load_experiments="match_name"
        )
        key = benchmark.column.replace(" (", "(")
        rows = [
            (int(entry["Rank"] or 0), _name_of_today(model), value)
            for model, entry in benchmark.get_score(results).items()
            if (value := entry[key]) is not None
        ]
        found[name] = sorted(rows)
    return {name: rows for name, rows in found.items() if rows}


def _name_of_today(model: str) -> str:
    name, bracket, experiment = model.partition(" (")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of names that have changed
        return f"{mteb.get_model_meta(name).name}{bracket}{experiment}"


def _stored(root: Path, aggregate: str) -> dict[str, float]:
    """Return what the files of an aggregate or a task say, by model and experiment."""
    stored = {}
    for path in (root / "results").rglob(f"{aggregate}.json"):
        if "crumb_tasks" not in path.parts:
            meta = json.loads((path.parent / "model_meta.json").read_text(encoding="utf-8"))
            experiment = path.parent.name if path.parent.parent.name == "experiments" else ""
            name = f"{meta['name']} ({experiment})" if experiment else meta["name"]
            stored[name] = json.loads(path.read_text(encoding="utf-8"))["scores"]["test"][0]["main_score"]
    return stored


def test_json_says_what_get_score_says(root: Path, expected: Mapping[str, list[Row]]) -> None:
    """What the runs stored is what is looked for below: aggregates, and the one task of InstructIR."""
    for name in ("CRUMBSample", "InstructIRSample"):
        assert {model: value for _, model, value in expected[name]} == pytest.approx(_stored(root, name), abs=1e-6)
        assert len(expected[name]) == 3


def test_api_says_the_same(home: Path, root: Path, expected: Mapping[str, list[Row]]) -> None:
    """All rows of MTEB's API, unmodified: rank, model, condition, and the value to six decimals."""
    port = _free_port()
    command = [_script("uvicorn"), "mteb.api.app:app", "--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}/v1/benchmarks"
    with _served(home, command, address, MTEB_CACHE=str(root)):
        for name, rows in expected.items():
            with urllib.request.urlopen(f"{address}/{quote(name)}/scores") as answer:
                served = json.load(answer)["rows"]
            assert [(row["rank"], _label(row)) for row in served] == [(rank, model) for rank, model, _ in rows]
            assert [row["meanTask"] for row in served] == pytest.approx([value for *_, value in rows], abs=1e-6)


def _label(row: Mapping[str, Any]) -> str:
    name: str = row["model"]["name"]
    experiment = "-".join(f"{key}_{value}" for key, value in (row["experiments"] or {}).items())
    return f"{name} ({experiment})" if experiment else name


def test_unmodified_leaderboard_shows_it(home: Path, root: Path, expected: Mapping[str, list[Row]]) -> None:
    """`mteb leaderboard`, as `--prepare-only` prints it: each benchmark is chosen and its first rows read."""
    port = _free_port()
    command = [_script("mteb"), "leaderboard", "--cache-path", str(root), "--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}/"
    with _served(home, command, address, CRUMB_TASKS_MENU="all"), _page() as page:
        page.goto(address, wait_until="domcontentloaded")
        for name, rows in expected.items():
            page.get_by_role("button", name=SHOWN[name], exact=True).click()
            _check_first_rows(page, name, rows)


def test_own_command_shows_it(home: Path, root: Path, expected: Mapping[str, list[Row]]) -> None:
    """`crumb-tasks leaderboard` listens on this machine alone, and prints an address for each benchmark."""
    port = _free_port()
    command = [sys.executable, "-m", "crumb_tasks", "leaderboard", str(root), "--port", str(port)]
    address = f"http://127.0.0.1:{port}/"
    with _served(home, command, address) as log, _page() as page:
        printed = _addresses(log, len(expected))
        assert all(printed[name].startswith(address) for name in expected)
        assert _listening_addresses(port) == {"0100007F"}
        name, rows = next(iter(expected.items()))
        page.goto(printed[name], wait_until="domcontentloaded")
        _check_first_rows(page, name, rows)


def _addresses(log: Path, count: int) -> dict[str, str]:
    """Return the printed address of each benchmark; they come after the server answers."""
    for _ in range(60):
        lines = log.read_text(encoding="utf-8").splitlines()
        found = {name: at for line in lines if line.startswith("  ") for name, _, at in [line.strip().rpartition(": ")]}
        if len(found) >= count:
            return found
        time.sleep(0.5)
    pytest.fail(f"no addresses in {log.read_text(encoding='utf-8')}")


def _listening_addresses(port: int) -> set[str]:
    """Return the local addresses, as Linux writes them, on which something listens on ``port``."""
    lines = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    local = [(fields[1].split(":"), fields[3]) for fields in map(str.split, lines)]
    return {host for (host, found), state in local if int(found, 16) == port and state == "0A"}


@contextmanager
def _page() -> Iterator[Any]:
    """Open a page in a headless browser, wide enough for all columns."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        only_here = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # the page names fonts and logos afar
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", only_here])
        page = browser.new_page(viewport={"width": 2600, "height": 1400})
        page.set_default_timeout(PATIENCE * 1000)
        yield page
        browser.close()


def _check_first_rows(page: Any, name: str, rows: list[Row]) -> None:
    """Compare the summary's first rows: rank, model, and the value as MTEB shows it, times 100 with two decimals."""
    column = mteb.get_benchmark(name).column
    page.get_by_role("heading", name=name, exact=True).wait_for()
    table = page.locator("table.table:visible").filter(has=page.get_by_text(column, exact=True)).first
    table.wait_for()
    head = [cell.strip() for cell in table.locator("thead th").all_inner_texts()]
    for at, (rank, model, value) in enumerate(rows[:3]):
        line = table.locator("tbody tr").nth(at)
        line.get_by_text(model.rpartition("/")[2]).first.wait_for()
        cells = [cell.strip() for cell in line.locator("td").all_inner_texts()]
        shown = dict(zip(head, cells, strict=True))
        assert (shown["Rank"], shown[column]) == (str(rank), f"{value * 100:.2f}")
        assert shown["Model"] in {model, model.rpartition("/")[2]}
        assert {"Rank (Borda)", "Mean (Task)"} <= shown.keys()
    if folder := os.environ.get("CRUMB_TASKS_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{quote(name)}.png")
