"""docs/generative_retrieval.md is a working example: its own blocks are run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from nci_data import write_nq320k
from standin import ROOT

from crumb_tasks import cli, register

register()
TEXT = (ROOT / "docs" / "generative_retrieval.md").read_text(encoding="utf-8")


def test_a_run_file_and_a_model_give_the_same_numbers(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways of the document, on NQ320k's real queries, in the order in which they stand there."""
    write_nq320k(shared_data, tmp_path)
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    writing, model = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (command,) = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {}

    exec(writing, names)
    code = cli.main([*shlex.split(command)[1:], "--json"])
    scored = json.loads(capsys.readouterr().out)
    exec(model, names)
    values = names["result"].task_results[0].scores["test"][0]

    assert code == 0
    assert float(capsys.readouterr().out.splitlines()[-1]) == values["hit_rate_at_1"]
    measures = scored["measures"]
    for name, key in (("Success@10", "hit_rate_at_10"), ("Success@100", "hit_rate_at_100"), ("RR@100", "mrr_at_100")):
        assert measures[name] == pytest.approx(values[key], abs=1e-5)
    for key in ("hit_rate_at_1_seen", "hit_rate_at_100_unseen"):
        assert scored["extras"][key] == pytest.approx(values[key], abs=1e-5)
    assert 0 < values["hit_rate_at_100"] < 0.01
