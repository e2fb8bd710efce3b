"""Training, recommendation lists and experiments on a Ray cluster, with the results of one process.

- `cluster`: `Cluster`, the connection to Ray, and independent tasks.
- `communicator`: messages between the workers that train one model.
- `training`: the workers, and the driver that restarts lost ones.
- `lists`: recommendation lists of all users.

Example:
    >>> Cluster(workers=2).workers
    2
"""

from transcf.distributed.cluster import Cluster

__all__ = ["Cluster"]
