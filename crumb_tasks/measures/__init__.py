"""Measures: how they are written (`notation`), and what they are (`kernels`, `delegated`).

Reading a name needs the standard library only, so that cards can be listed at once; the rest is imported by
``scoring``, the only caller of measures.
"""

from __future__ import annotations

from crumb_tasks.measures.notation import Measure, mteb_key, parse_measure

__all__ = ["Measure", "mteb_key", "parse_measure"]
