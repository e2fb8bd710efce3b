"""The same training on a Ray cluster: bits do not depend on who carries which users.

A worker keeps some groups of users (vectors, interactions) and a copy of the items' side. What
workers tell each other depends on how a model learns: blocks of items that travel, gradients of
batches, vectors of users. Whatever is added up is added up in an order that the data fix.

- `post`: arrays from worker to worker, by tag.
- `lines`: how they travel; `ring`: where they lie between two workers of a machine.
- `crew`: what a solver asks of users whom other workers have.
- `worker`: one share of the users, in a process of its own.
- `driver`: all workers as one trainable; starts them anew when one is lost.
- `session`: Ray itself, started on loopback unless an address is given.
- `scoring`: lists for everybody.
- `tasks`, `helpers`, `trials`: work that is shared out whole: data, runs of tables, tuning.

Example:
    >>> Cluster(workers=2).workers
    2
"""

from transcf.distributed.driver import Cluster

__all__ = ["Cluster"]
