"""What was measured on: processors, memory, devices, versions; and how much memory the process has had.

No name of a host, user or folder is recorded.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from crumb_tasks.cost.axes import Quantity, known, unknown

_STATUS = Path("/proc/self/status")
_REFERENCES = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Linux: sets the peak of resident memory to what is resident now (proc(5), ``clear_refs``)."""


@dataclass(frozen=True)
class MachineRecord:
    """A machine as far as its speed depends on it.

    Attributes:
        processor: Model.
        processors: How many this process may use.
        memory_bytes: Of the machine; ``None`` where it does not tell.
        devices: Names of accelerators.
        threads: That torch uses.
        system: Operating system and architecture.
        python: Version.
        torch: Version.
        load: Load average of the last minute when it was recorded; ``None`` where the system has none.
    """

    processor: str
    processors: int
    memory_bytes: int | None
    devices: tuple[str, ...]
    threads: int
    system: str
    python: str
    torch: str
    load: float | None

    @classmethod
    def of_this(cls) -> MachineRecord:
        """Return the record of this machine, now."""
        is_cuda = torch.cuda.is_available()
        return cls(
            processor=_processor(),
            processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            memory_bytes=_memory(),
            devices=tuple(torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())) if is_cuda else (),
            threads=torch.get_num_threads(),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            torch=str(torch.__version__),
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it for a file."""
        return {**asdict(self), "devices": list(self.devices)}

    def quantities(self) -> dict[str, Quantity]:
        """Return what of it is a quantity of the axis of infrastructure."""
        memory = self.memory_bytes
        return {
            "processors": known(self.processors),
            "machine_bytes": unknown("the system does not tell its memory") if memory is None else known(memory),
            "devices": known(len(self.devices)),
        }


def _processor() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found is not None:
            return found[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


class Memory:
    """Peak memory of this process and its device, from the moment that this is made."""

    def __init__(self) -> None:
        self.is_reset = False
        with contextlib.suppress(OSError):
            _REFERENCES.write_text(_RESET_PEAK, encoding="ascii")
            self.is_reset = True
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def quantities(self) -> dict[str, Quantity]:
        """Return the peaks; libraries and weights are in them."""
        peak = status_bytes("VmHWM") if self.is_reset else None
        process = unknown("the system does not tell the peak of a part of a process") if peak is None else known(peak)
        if torch.cuda.is_available():
            device = known(torch.cuda.max_memory_allocated())
        else:
            device = unknown("no CUDA device was used")
        return {"peak_process_bytes": process, "peak_device_bytes": device}


def status_bytes(field: str) -> int | None:
    """Return a field of Linux' status of this process, such as ``VmRSS`` (resident memory), in bytes."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError):
        found = re.search(rf"^{field}:\s*(\d+) kB$", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
        return None if found is None else int(found[1]) * 1024
    return None
