"""Ray itself: a cluster that is there, or one on this machine that lives as long as a fit."""

from __future__ import annotations

import os
from typing import Any

from transcf.errors import MissingExtraError, UnsupportedError

#: Nobody else on the network may use a cluster that we start.
LOOPBACK = "127.0.0.1"


def import_ray() -> Any:
    """Return the library, or say what to install."""
    try:
        import ray
    except ImportError as problem:
        raise MissingExtraError("Training on a cluster", "cluster") from problem
    return ray


class Session:
    """A connection to Ray, made at once.

    Args:
        address: Of a cluster; "auto" finds the one of this machine; None starts one here, on
            loopback, which ends with the session.
        processors: How many the cluster that is started has to have.

    Raises:
        UnsupportedError: There is no cluster at the address.
    """

    def __init__(self, address: str | None, processors: int) -> None:
        """Connect, or start."""
        self.ray = import_ray()
        self._is_own = not self.ray.is_initialized()
        if not self._is_own:
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
        if address is not None:
            try:
                self.ray.init(address=address, log_to_driver=False, logging_level="error")
            except Exception as problem:
                raise UnsupportedError(
                    f"There is no Ray cluster at {address!r} ({problem}): start one there "
                    "(`ray start --head`), or leave the address out."
                ) from problem
            return
        self.ray.init(
            address="local",
            num_cpus=processors,
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
            log_to_driver=False,
            logging_level="error",
        )

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self._is_own and self.ray.is_initialized():
            self.ray.shutdown()
