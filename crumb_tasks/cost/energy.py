"""Energy, where codecarbon is installed; it estimates what the machine does not tell."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from crumb_tasks.cost.axes import Quantity, known, unknown

_ABSENT = "codecarbon is not installed: pip install 'crumb-tasks[energy]'"


class Energy:
    """Measures from `start` to `stop`; asks no network and writes no file."""

    def __init__(self) -> None:
        self._tracker: Any = None
        self._why = _ABSENT

    def start(self) -> None:
        """Begin."""
        try:
            from codecarbon import OfflineEmissionsTracker
        except ImportError:
            return
        logging.getLogger("codecarbon").setLevel(logging.ERROR)
        try:  # the country decides about carbon, which is not reported
            self._tracker = OfflineEmissionsTracker(
                country_iso_code="USA",
                save_to_file=False,
                log_level="error",
                measure_power_secs=1,
                allow_multiple_runs=True,  # else the lock file of a run that was killed forbids all later ones
            )
            self._tracker.start()
        except Exception as error:  # noqa: BLE001 -- what it cannot read of a machine is its own matter
            self._tracker, self._why = None, f"codecarbon cannot measure here ({type(error).__name__})"

    def stop(self) -> float | None:
        """Return the watt-hours since `start`, ``None`` where they are not known."""
        if self._tracker is None:
            return None
        with contextlib.suppress(Exception):  # as above
            self._tracker.stop()
            used = self._tracker.final_emissions_data.energy_consumed
            return float(used) * 1000
        self._why = "codecarbon told no energy"
        return None

    def quantity(self, watt_hours: float | None, *, share: float = 1.0) -> Quantity:
        """Return ``watt_hours`` x ``share`` as a quantity."""
        return unknown(self._why) if watt_hours is None else known(watt_hours * share)
