"""Folders that may not be read are named, not passed over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TASK = "CRUMBSampleLegalQA"
SCRIPT = """
import os
from pathlib import Path
from crumb_tasks.files import unreadable_folders
from crumb_tasks.report.results import read_results
read_results(Path("."), {"CRUMBSampleLegalQA"})  # imports all that is needed
if os.geteuid() == 0:
    os.seteuid(65534)  # root may read everything
found = read_results(Path("."), {"CRUMBSampleLegalQA"})
print([system.model for system in found.by_system])
print([f"{entry.path}: {entry.reason}" for entry in found.skipped])
print(list(unreadable_folders(Path("."))))
"""


def test_folder_without_permission_is_named(tmp_path: Path) -> None:
    """The results in it are missing, and the reader is told so."""
    for model in ("open", "shut"):
        folder = tmp_path / "results" / model / "1"
        folder.mkdir(parents=True)
        entry = {"hf_subset": "default", "ndcg_at_10": 0.5}
        content = {"task_name": TASK, "scores": {"test": [entry]}}
        (folder / f"{TASK}.json").write_text(json.dumps(content), encoding="utf-8")
        (folder / "model_meta.json").write_text(json.dumps({"name": model, "revision": "1"}), encoding="utf-8")
    tmp_path.chmod(0o755)
    shut = tmp_path / "results" / "shut"
    shut.chmod(0)
    try:
        done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        shut.chmod(0o755)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "['open']",
        "['results/shut: the folder cannot be read (Permission denied)']",
        "['results/shut: the folder cannot be read (Permission denied)']",
    ]
