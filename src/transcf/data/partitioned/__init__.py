"""Logs that no process holds whole: prepared from Parquet files, on disk by partitions of users.

- `pieces`: rows of files, some at a time.
- `scattering`: ids counted, events dealt out to partitions.
- `shares`: what is done with one partition.
- `filtering`: too few events, counted in several places.
- `steps`, `preparing`: all of it in its order.
- `manifest`, `log`: the folder, and what reads it.
- `running`: who does the tasks.
"""
