"""Logs larger than the memory of a process: a folder of Parquet files by ranges of users.

- `prepare`: reads, filters and splits Parquet files, and writes the folder.
- `log`: reads the folder.
"""
