"""Ray itself: a cluster that is there, or one on this machine that lives as long as a fit."""

from __future__ import annotations

import os
import socket
from typing import Any

from transcf.errors import MissingExtraError, UnsupportedError

#: Nobody else on the network may use a cluster that we start.
LOOPBACK = "127.0.0.1"
#: How long to wait for an answer.
_PATIENCE_SECONDS = 10.0


def import_ray() -> Any:
    """Return the library, or say what to install."""
    try:
        import ray
    except ImportError as problem:
        raise MissingExtraError("Training on a cluster", "cluster") from problem
    return ray


def _check_answers(address: str) -> None:
    """Raise an `OSError` if nobody listens at host:port, which Ray would wait minutes for."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), _PATIENCE_SECONDS).close()


class Session:
    """A connection to Ray, made at once.

    Args:
        address: Of a cluster; "auto" finds the one of this machine; None starts one here, on
            loopback, which ends with the session.
        processors: How many the cluster that is started has to have.

    Raises:
        UnsupportedError: There is no cluster at the address, or this process is connected to
            another one.
    """

    def __init__(self, address: str | None, processors: int) -> None:
        """Connect, or start."""
        self.ray = import_ray()
        self._is_own = not self.ray.is_initialized()
        if not self._is_own:
            self._check_connected(address)
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
        if address is not None:
            try:
                _check_answers(address)
                self.ray.init(address=address, log_to_driver=False, logging_level="error")
            except Exception as problem:
                raise UnsupportedError(
                    f"There is no Ray cluster at {address!r} ({problem}): start one there "
                    "(`ray start --head`), or leave the address out."
                ) from problem
            return
        self._start_here(processors)

    def _check_connected(self, address: str | None) -> None:
        """Refuse another cluster than the one that this process is connected to already."""
        if address is None or address == "auto":
            return
        known = self.ray.get_runtime_context().gcs_address
        if address != known and not self._is_connected_to(address, known):
            raise UnsupportedError(
                f"This process is connected to the Ray cluster at {known}, not to {address}: leave "
                "the address out, or call ray.shutdown() before."
            )

    def _is_connected_to(self, address: str, known: str) -> bool:
        """Whether an address is another name of the one that is known."""
        (host, _, port), (known_host, _, known_port) = (
            one.rpartition(":") for one in (address, known)
        )
        if host.startswith("ray://"):
            return bool(self.ray.util.client.ray.is_connected())
        try:
            found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
        except OSError:
            return False
        is_here = LOOPBACK in found and known_host == self.ray.util.get_node_ip_address()
        return port == known_port and (known_host in found or is_here)

    def _start_here(self, processors: int, attempts: int = 3) -> None:
        """Start a cluster on loopback; a busy machine may need more than Ray's patience."""
        for attempt in range(1, attempts + 1):
            try:
                self.ray.init(
                    address="local",
                    num_cpus=processors,
                    include_dashboard=False,
                    _node_ip_address=LOOPBACK,
                    log_to_driver=False,
                    logging_level="error",
                )
                return
            except Exception as problem:  # Ray raises nothing more telling
                self.ray.shutdown()
                if attempt == attempts:
                    raise UnsupportedError(
                        f"Ray does not start on this machine ({problem}): see its log in /tmp/ray, "
                        "or train without a cluster."
                    ) from problem

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self._is_own and self.ray.is_initialized():
            self.ray.shutdown()
