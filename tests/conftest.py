"""Fixtures that several test modules share: real data where they lie beside the checkout, and a clean environment."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported: no test reaches for a network

ROOT = Path(__file__).resolve().parent.parent
_SILENCED = ("mteb", "sentence_transformers", "transformers", "datasets", "bm25s")
_UPSTREAM_PLACE_BY_FOLDER = {
    "analobench": "JHU-CLSP/AnaloBench/data",
    "moose_chem": "ZonglinY/MOOSE-Chem/Data",
}
"""Where a folder of the shared data stands in its repository; they lie flat there."""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's data root, or another test's cache."""
    monkeypatch.delenv("CRUMB_TASKS_DATA", raising=False)
    monkeypatch.setenv("CRUMB_TASKS_CACHE", str(tmp_path / "crumb_tasks_cache"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache and a file of models of the test's own, and everything that ``crumb-tasks run`` silences."""
    from mteb.models.model_implementations import MODEL_REGISTRY

    registry = dict(MODEL_REGISTRY)
    levels = {name: logging.getLogger(name).level for name in _SILENCED}
    for name in ("TQDM_DISABLE", "TOKENIZERS_PARALLELISM", "HF_HUB_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CRUMB_TASKS_MODELS", str(tmp_path / "models.json"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield tmp_path
    MODEL_REGISTRY.clear()
    MODEL_REGISTRY.update(registry)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data (``CRUMB_TASKS_SHARED``); its README says what it holds and under which licences."""
    folder = Path(os.environ.get("CRUMB_TASKS_SHARED") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"real data are not in {folder}; CRUMB_TASKS_SHARED names their folder")
    return folder


@pytest.fixture(scope="session")
def upstream_root(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the real data in the layout of their repositories."""
    root = tmp_path_factory.mktemp("data_root")
    for folder, place in _UPSTREAM_PLACE_BY_FOLDER.items():
        (root / place).mkdir(parents=True)
        for file in (shared_data / folder).iterdir():
            if file.is_file() and file.name != "SOURCE.md":
                shutil.copyfile(file, root / place / file.name)
    return root


@pytest.fixture(scope="session")
def rarb_root(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with RAR-b's official multiple-choice files."""
    root = tmp_path_factory.mktemp("rarb_root")
    shutil.copytree(shared_data / "rarb" / "mcr", root / "gowitheflow-1998" / "RAR-b" / "mcr")
    return root
