"""`Cluster`, the connection to Ray, and independent calls in its workers."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from transcf.errors import ParameterError, UnsupportedError, needs_extra
from transcf.parallel import thread_count, use_threads

if TYPE_CHECKING:
    from transcf.distributed.training import DistributedTraining
    from transcf.experiments.workers import Workers

T = TypeVar("T")

#: A cluster that is started here cannot be reached from the network.
LOOPBACK = "127.0.0.1"
_CONNECT_SECONDS = 10.0
_QUIET = {"log_to_driver": False, "logging_level": "error"}
#: Attempts to start Ray, which may time out on a busy machine.
_STARTS = 3
#: Times that a call is repeated whose worker was lost.
_RETRIES = 3


@dataclass(frozen=True)
class Cluster:
    """Where to train: `FitOptions(cluster=Cluster(workers=2))`.

    Attributes:
        workers: Number of processes that share the work.
        address: Address of a Ray cluster; "auto" finds the one of this machine; None starts one on
            this machine that ends with the work.
        threads: Threads of each worker; None divides those of this machine.

    Example:
        >>> Cluster(workers=2, threads=1).address is None
        True
    """

    workers: int = 2
    address: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("threads", self.threads or 1)):
            if not isinstance(value, int) or value < 1:
                raise ParameterError(f"Cluster({name}={value!r}): give a number from 1 on.")

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """Read "N", or "N@ADDRESS" (`--workers`); N@local starts a cluster on this machine."""
        number, at, address = text.partition("@")
        is_count = number.isascii() and number.isdecimal() and int(number)
        if not is_count or bool(at) != bool(address):
            raise ParameterError(
                f"--workers {text} is not understood: write a number from 1 on, or N@ADDRESS for "
                "a Ray cluster."
            )
        return cls(workers=int(number), address=None if address in ("", "local") else address)

    def threads_for(self, workers: int) -> int:
        """Return the number of threads of each of so many workers."""
        return self.threads or max(1, thread_count() // workers)

    def spread(self, solver: Any, problem: Any, settings: Any) -> DistributedTraining:
        """Train a class of solvers with the users divided among the workers."""
        from transcf.distributed.training import DistributedTraining

        return DistributedTraining(self, solver, problem, settings)

    @contextmanager
    def open_workers(self, work: Callable[..., object], *shared: Any) -> Iterator[Workers]:
        """Yield workers that call `work` with shared arguments, followed by those of the call.

        The call of a lost worker is repeated by another one. At the end, calls are cancelled. Warns
        if the cluster has fewer processors than its workers ask for.
        """
        from transcf.experiments.workers import Workers

        threads = self.threads_for(self.workers)
        with connected(self.address, self.workers * threads) as ray:
            nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
            size = min(self.workers, sum(int(cpus // threads) for cpus in nodes))
            if size < self.workers:
                warnings.warn(
                    f"The cluster has room for {size} of {self.workers} workers with {threads} "
                    "threads each.",
                    stacklevel=2,
                )
            task = ray.put(shared)  # once for all workers
            remote = ray.remote(num_cpus=threads, max_retries=_RETRIES)(do)
            calls: list[Any] = []

            def submit(*arguments: Any) -> Future[Any]:
                calls.append(remote.remote(work, threads, task, arguments))
                future: Future[Any] = calls[-1].future()
                return future

            try:
                yield Workers(size, submit, (ray.exceptions.RayError,))
            except ray.exceptions.RayTaskError as problem:
                raise problem.cause from None  # the error of the call, without Ray's traceback
            finally:
                for call in calls:
                    with suppress(ray.exceptions.RayError):  # finished ones are left as they are
                        ray.cancel(call, force=True)


# -- the connection to Ray -------------------------------------------------------------------------


def import_ray() -> Any:
    """Return the library, or raise a `MissingExtraError`."""
    with needs_extra("Training on a cluster", "cluster"):
        import ray
    return ray


@contextmanager
def connected(address: str | None, processors: int) -> Iterator[Any]:
    """Connect to Ray for the length of the block, and yield the library.

    Without an address and an earlier connection, a cluster with so many processors is started here,
    and ended with the block. An `UnsupportedError` says that there is no cluster at the address, or
    that this process is connected to another one.
    """
    ray = import_ray()
    if ray.is_initialized():
        known = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", known):
            raise UnsupportedError(
                f"This process is connected to the Ray cluster at {known}, not to {address}: leave "
                "the address out, or call ray.shutdown() before."
            )
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    if address is None:
        _start(ray, processors)
    else:
        _join(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def _start(ray: Any, processors: int) -> None:
    for attempt in range(1, _STARTS + 1):
        try:
            ray.init(
                address="local",
                num_cpus=processors,
                include_dashboard=False,
                _node_ip_address=LOOPBACK,
                **_QUIET,
            )
            return
        except Exception as problem:  # Ray raises nothing more specific
            ray.shutdown()
            if attempt == _STARTS:
                raise UnsupportedError(
                    f"Ray does not start on this machine ({problem}): see its log in /tmp/ray, or "
                    "train without a cluster."
                ) from problem


def _join(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdigit() and "/" not in host:  # else Ray would wait for minutes
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        ray.init(address=address, **_QUIET)
    except Exception as problem:
        raise UnsupportedError(
            f"There is no Ray cluster at {address!r} ({problem}): start one there (`ray start "
            "--head`), or leave the address out."
        ) from problem


def do(work: Callable[..., T], threads: int, shared: Iterable[Any], more: Iterable[Any]) -> T:
    """Call `work(*shared, *more)` in a worker with so many threads."""
    with use_threads(threads):
        return work(*shared, *more)
