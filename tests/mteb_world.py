"""Small collections on disk in BEIR's layout, cards for them, and an installation of this package with its own cards.

An installation is a folder of links to the package with its own ``task_metadata``. Put first on ``PYTHONPATH`` it is
what the unmodified ``mteb`` command finds, whether or not the running environment has this package installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crumb_tasks.cards import AggregateCard, TaskCard

ROOT = Path(__file__).parent.parent
MTEB = Path(sys.executable).parent / "mteb"

CORPUS = {
    "d1": "A red fox jumps over the lazy dog",
    "d2": "Quantum computers factor large integers",
    "d3": "The dog sleeps in the afternoon sun",
    "d4": "Bread rises when yeast ferments sugar",
    "d5": "A lighthouse keeper watches the storm",
    "d6": "Integers and primes fascinate mathematicians",
}
QUERIES = {"q1": "dog near fox", "q2": "factor integers", "q3": "bread and yeast", "v1": "storm at the lighthouse"}
QRELS = {
    "test": {"q1": {"d1": 2, "d3": 1}, "q2": {"d2": 2, "d6": 1}, "q3": {"d4": 1}},
    "validation": {"v1": {"d5": 1}},
}


def write_collection(
    folder: Path,
    *,
    corpus: Mapping[str, str] = CORPUS,
    queries: Mapping[str, str] = QUERIES,
    qrels: Mapping[str, Mapping[str, Mapping[str, float]]] = QRELS,
    parents: Mapping[str, str] | None = None,
    prompts: Mapping[str, str] | None = None,
    candidates: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Write a collection in BEIR's layout and return its folder."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    parent = {key: {} if parents is None else {"parent": parents[key]} for key in corpus}
    prompt = {key: {} if prompts is None else {"instruction": prompts.get(key, "")} for key in queries}
    rows = [{"_id": key, "title": "", "text": text, **parent[key]} for key, text in corpus.items()]
    _write_jsonl(folder / "corpus.jsonl", rows)
    _write_jsonl(folder / "queries.jsonl", [{"_id": key, "text": text, **prompt[key]} for key, text in queries.items()])
    for split, grades in qrels.items():
        lines = [f"{query}\t{doc}\t{grade}" for query, row in grades.items() for doc, grade in row.items()]
        text = "\n".join(["query-id\tcorpus-id\tscore", *lines, ""])
        (folder / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")
    if candidates is not None:
        _write_jsonl(folder / "top_ranked.jsonl", [{"query-id": q, "corpus-ids": ids} for q, ids in candidates.items()])
    return folder


def _write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def task_card(name: str = "Mini", **changes: Any) -> TaskCard:
    """Return the card of a collection that lies in the data root as ``test/<name in lower case>``."""
    fields: dict[str, Any] = {
        "name": name,
        "description": "Six documents.",
        "loader": "beir",
        "source": {"hub": f"test/{name.lower()}", "revision": "r1"},
        "splits": {"test": "test", "validation": "validation"},
        "schema_verified": True,
    }
    return TaskCard.model_validate(fields | changes)


def aggregate_card(*members: Any, name: str = "MiniMean", **changes: Any) -> AggregateCard:
    """Return the card of an aggregate over ``members``, by default an arithmetic mean of nDCG@10."""
    fields: dict[str, Any] = {"name": name, "description": "A mean.", "reduction": {"members": members}}
    return AggregateCard.model_validate(fields | changes)


SITECUSTOMIZE = """
import os, sys
log = os.environ.get("TEST_SOCKET_LOG")
if log:
    def audit(event, args):
        if event in ("socket.connect", "socket.getaddrinfo"):
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"{event} {args!r}\\n")
    sys.addaudithook(audit)
if not os.environ.get("TEST_NO_HOOK"):
    import _crumb_tasks_hook
    _crumb_tasks_hook.install()
"""


@dataclass
class Installation:
    """This package with cards of its own, on ``PYTHONPATH``.

    Attributes:
        path: The folder.
        data: The data root.
        env: Further environment variables.
    """

    path: Path
    data: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def socket_log(self) -> Path:
        """Where every connection and name look-up is written."""
        return self.path / "sockets.txt"

    def connections(self) -> str:
        """Return what went out to a network so far, one line each."""
        return self.socket_log.read_text(encoding="utf-8") if self.socket_log.exists() else ""

    def environment(self, **env: str) -> dict[str, str]:
        """Return the environment of a process that finds this installation."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CRUMB_TASKS", "MTEB", "HF_"))}
        own = {
            "PYTHONPATH": str(self.path),
            "CRUMB_TASKS_DATA": str(self.data),
            "CRUMB_TASKS_CACHE": str(self.path / "cache"),
            "CRUMB_TASKS_MODELS": str(self.path / "models.json"),
            "MTEB_CACHE": str(self.path / "mteb"),
            "HF_HOME": str(self.path / "hf"),
            "TEST_SOCKET_LOG": str(self.socket_log),
        }
        return kept | own | self.env | env

    def python(self, code: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run Python code."""
        return self._run([sys.executable, *flags, "-c", code], env)

    def mteb(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the unmodified ``mteb`` command."""
        return self._run([str(MTEB), *arguments], env)

    def script(self, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script."""
        return self._run([sys.executable, str(path), *arguments], {})

    def requires(self, requirement: str) -> None:
        """Let the installed package's metadata say that it requires ``requirement``."""
        folder = self.path / "crumb_tasks-99.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.1\nName: crumb-tasks\nVersion: 99\nRequires-Dist: {requirement}\n"
        (folder / "METADATA").write_text(text, encoding="utf-8")

    def write_card(self, name: str, text: str) -> None:
        """Write a card."""
        (self.path / "crumb_tasks" / "task_metadata" / f"{name}.toml").write_text(text, encoding="utf-8")

    def _run(self, command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(**env),
            cwd=self.path,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )


def install(folder: Path, cards: Mapping[str, str]) -> Installation:
    """Make an installation whose only cards are ``cards``, file name → TOML."""
    package = folder / "crumb_tasks"
    package.mkdir(parents=True)
    for entry in (ROOT / "crumb_tasks").iterdir():
        if entry.name not in {"__pycache__", "task_metadata"}:
            (package / entry.name).symlink_to(entry)
    (package / "task_metadata").mkdir()
    (folder / "_crumb_tasks_hook.py").symlink_to(ROOT / "_crumb_tasks_hook.py")
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
    installation = Installation(folder, folder / "data")
    for name, text in cards.items():
        installation.write_card(name, text)
    return installation
