"""README says what is so. Run this file to write the commands' help into it."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib

import pytest
from standin import ROOT

from crumb_tasks import cli

README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- help:[^\n]*-->\n).*?(<!-- /help -->)", re.DOTALL)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def help_texts() -> str:
    """Return the help of all commands as Markdown."""
    parser = cli.make_parser(cli.command_names())
    choices = parser._subparsers._group_actions[0].choices
    parts = [("crumb-tasks", parser), *((f"crumb-tasks {name}", choices[name]) for name in cli.command_names())]
    return "\n".join(f"### {name}\n\n```text\n{part.format_help().strip()}\n```\n" for name, part in parts)


def with_help(text: str) -> str:
    """Return README's ``text`` with the present help, at the width of README."""
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"
    return BLOCK.sub(lambda match: f"{match[1]}\n{help_texts()}\n{match[2]}", text)


def shell_lines() -> list[str]:
    """Return the lines of README's sh blocks, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse lays out help differently in each version")
def test_help_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """README shows what --help shows; `python tests/test_readme.py` writes it."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    text = README.read_text(encoding="utf-8")

    assert with_help(text) == text


def test_commands_in_readme_exist() -> None:
    """Every crumb-tasks line parses, and every name that it mentions is a command."""
    text = README.read_text(encoding="utf-8")
    lines = [shlex.split(line)[1:] for line in shell_lines() if line.startswith("crumb-tasks ")]
    mentioned = set(re.findall(r"`crumb-tasks ([a-z]+)", text))

    assert lines
    for line in lines:
        cli.make_parser([line[0]]).parse_args(line)
    assert mentioned <= set(cli.command_names())


def test_tasks_in_readme_exist() -> None:
    """What README tells people to run is there."""
    from crumb_tasks.cards import read_cards

    names = set(re.findall(r"mteb run -[tb] (\w+)", README.read_text(encoding="utf-8")))
    known = {entry.name for card in read_cards() for entry in (*card.tasks, *card.aggregates, *card.benchmarks)}

    assert names
    assert names <= known


def test_continuous_integration_runs_what_readme_says() -> None:
    """The very line under "Tests" stands in .ci/run."""
    (command,) = (line for line in shell_lines() if line.endswith("&& pytest"))

    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_supported_versions_are_those_of_the_package() -> None:
    """README repeats what pyproject.toml states, letter by letter."""
    text = README.read_text(encoding="utf-8")
    (mteb,) = (entry for entry in PROJECT["dependencies"] if re.match(r"mteb\b", entry))

    assert f"`{mteb}`" in text
    assert f"Python `{PROJECT['requires-python']}`" in text


def test_switches_in_readme_are_read_somewhere() -> None:
    """Each environment variable that README names exists in the code."""
    sources = [*(ROOT / "crumb_tasks").rglob("*.py"), ROOT / "_crumb_tasks_hook.py", *(ROOT / "tests").glob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.name != "test_readme.py")
    named = set(re.findall(r"CRUMB_TASKS_[A-Z_]+", README.read_text(encoding="utf-8")))

    assert {name for name in named if f'"{name}"' not in code} == set()


def test_licence_is_the_file() -> None:
    """pyproject.toml, README and LICENSE name one licence."""
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "\nApache-2.0" in README.read_text(encoding="utf-8")


if __name__ == "__main__":
    README.write_text(with_help(README.read_text(encoding="utf-8")), encoding="utf-8")
