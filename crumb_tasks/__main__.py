"""``python -m crumb_tasks`` is the command ``crumb-tasks``."""

from __future__ import annotations

import sys

from crumb_tasks.cli import main

if __name__ == "__main__":
    sys.exit(main())
