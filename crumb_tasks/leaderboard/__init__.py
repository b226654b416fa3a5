"""Local results on MTEB's own leaderboard and API, without network and without a change to MTEB.

Both read files in ``leaderboard/`` of MTEB's cache, which they make from the Hub or from a clone of MTEB's results.
Here they are made from the results in the cache alone. What needs the extra is imported when it is needed.
"""

from __future__ import annotations

from crumb_tasks.leaderboard.preparing import Prepared, prepare
from crumb_tasks.leaderboard.reading import cache_root
from crumb_tasks.leaderboard.serving import check_extra, serve

__all__ = ["Prepared", "cache_root", "check_extra", "prepare", "serve"]
