"""The same training on a Ray cluster: bits do not depend on who carries which users.

Users form groups, items are dealt into blocks, and in round r group g meets block g + r. That does
not care where a group lives. A worker keeps its groups (vectors, interactions, strata); blocks of
items travel from worker to worker; means are summed up in the order of the groups.

- `post`: arrays from worker to worker, by tag.
- `crew`: what a solver asks of users whom other workers have.
- `worker`: one share of the users, in a process of its own.
- `driver`: all workers as one trainable; starts them anew when one is lost.
- `session`: Ray itself, started on loopback unless an address is given.

Example:
    >>> Cluster(workers=2).workers
    2
"""

from transcf.cluster.driver import Cluster

__all__ = ["Cluster"]
