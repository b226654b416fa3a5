"""Commands that need no pandas do without, and whoever needs it afterwards has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import run_bytes
from sample_runs import PLAIN, document_run

COMMAND = """
import json, sys
from crumb_tasks.cli import main
code = main(sys.argv[1:])
had = "pandas" in sys.modules
from crumb_tasks.cli._pandas import let_pandas_back
let_pandas_back()
import pandas, pyarrow
column = pyarrow.array(pandas.Series(["a", None]))
print(json.dumps([code, had, column.null_count]), file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["score", "compare", "convert"])
def test_run_files_are_read_without_pandas(tmp_path: Path, command: str) -> None:
    """The first conversion by pyarrow would import it, which takes longer than the rest of the command."""
    pytest.importorskip("pandas")
    runs = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path in runs:
        path.write_bytes(run_bytes.jsonl(document_run(PLAIN)))
    rest = {
        "score": [str(runs[0]), "--task", PLAIN],
        "compare": [*map(str, runs), "--task", PLAIN],
        "convert": [str(runs[0]), str(tmp_path / "out.trec")],
    }

    done = subprocess.run(
        [sys.executable, "-c", COMMAND, command, *rest[command]], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stderr.splitlines()[-1]) == [0, False, 1]
