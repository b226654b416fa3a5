"""A model that workers load: what the driver knows of it, and what it sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crumb_tasks.cluster.remote import RemoteModel
from crumb_tasks.errors import UsageError
from crumb_tasks.local_models import is_local
from crumb_tasks.model_folders import folder_revision
from crumb_tasks.models import Instructions, LazyModel, LoadOptions

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from crumb_tasks.models import Observer


@dataclass(frozen=True)
class Loading:
    """How a worker loads the model; called with its observer.

    Attributes:
        meta: MTEB's metadata of the model, without an experiment.
        options: How to load it.
        instructions: The condition that it runs under.
        experiment: What tells this use of it from others.
    """

    meta: ModelMeta
    options: LoadOptions = field(default_factory=LoadOptions)
    instructions: Instructions = field(default_factory=Instructions)
    experiment: dict[str, str | int] = field(default_factory=dict)

    def __call__(self, observe: Observer) -> Any:
        """Load the model.

        Raises:
            UsageError: A local directory holds other weights on this machine, or none.
            Exception: What its loader raises.
        """
        self._compare_weights()
        return LazyModel(self.meta, self.options, self.instructions, self.experiment, observe).load()

    def _compare_weights(self) -> None:
        if not is_local(self.meta):
            return
        loader: Any = self.meta.loader
        local = loader.keywords["local"]
        try:
            found = folder_revision(_existing(local.path))
        except UsageError as error:
            raise UsageError(f"'{self.meta.name}' must lie at the same path on every machine: {error}") from error
        if found != local.revision:
            raise UsageError(
                f"the weights in {local.path} are {found} on this machine, {local.revision} on the driver's; every "
                "machine needs the same"
            )


def _existing(path: str) -> Any:
    from pathlib import Path

    if not Path(path).is_dir():
        raise UsageError(f"there is no directory {path}")
    return Path(path)


@dataclass
class ModelOnCluster:
    """Stands for a `crumb_tasks.models.LazyModel` whose weights are on workers.

    Attributes:
        meta: MTEB's metadata, with the experiment.
        remote: What ranks.
    """

    meta: ModelMeta
    remote: RemoteModel

    is_loaded = True
    """Workers load it; there is nothing to wait for here."""

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it scores pairs, as far as its metadata tell."""
        return "cross-encoder" in self.meta.model_type

    def load(self) -> RemoteModel:
        """Return what ranks.

        Raises:
            ClusterError: No worker can load the model.
        """
        self.remote.workers.kind()
        return self.remote
