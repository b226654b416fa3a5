"""What the commands that load a model share: finding it, and silence of the libraries that it brings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from mteb.models import ModelMeta


def be_quiet() -> None:
    """Leave the screen to this command: MTEB, datasets and transformers have bars and logs of their own."""
    import logging
    import os
    import warnings

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("DISABLE_TQDM", "1")  # how bm25s calls it
    for name in ("mteb", "sentence_transformers", "transformers", "datasets", "bm25s"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(mteb|sentence_transformers|transformers|datasets)(\.|$)")
    import datasets
    from transformers.utils import logging as transformers_logging

    datasets.disable_progress_bars()
    quiet: Any = transformers_logging.disable_progress_bar  # it has no annotations
    quiet()


def meta_of(args: argparse.Namespace) -> ModelMeta:
    """Return MTEB's metadata of the model that the arguments name: a directory, or one that MTEB knows.

    Raises:
        UsageError: There is no such model, or an option does not fit its kind.
    """
    from crumb_tasks.local_models import model_meta
    from crumb_tasks.models.loading import find_meta
    from crumb_tasks.running.directories import name_directory

    folder = Path(args.model).expanduser()
    if folder.is_dir():
        if args.revision:
            raise UsageError("--revision is for models on the Hub; a directory's revision is the hash of its weights")
        name, local, message = name_directory(folder, args.name)
        if message:
            print(message, file=sys.stderr)
        return model_meta(name, local)
    if args.name:
        raise UsageError(f"--name is for a model in a directory; {args.model} is none")
    if args.model.startswith((".", "/", "~")):
        raise UsageError(f"there is no directory {args.model}")
    return find_meta(args.model, args.revision)
