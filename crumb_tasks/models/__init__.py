"""Models under a condition: with another instruction, with given options, loaded when they are first needed.

- `instructions`: the conditions that concern instructions, as text
- `conditioned`: wrappers that send the text of a condition to a model of any of MTEB's kinds
- `late_chunking`: an encoder that reads a document once and pools its chunks from it
- `loading`: a model that is named but not yet loaded, and the options that it is loaded with
"""

from __future__ import annotations

from crumb_tasks.models.conditioned import Observer, conditioned
from crumb_tasks.models.instructions import Instructions
from crumb_tasks.models.late_chunking import LateChunking
from crumb_tasks.models.loading import LazyModel, LoadOptions

__all__ = ["Instructions", "LateChunking", "LazyModel", "LoadOptions", "Observer", "conditioned"]
