"""`python -m transcf` is `transcf`."""

from transcf.cli import main

main()
