"""The command line: parse, call the library, print."""


def main() -> None:
    """Run `transcf`; everything is imported late, so that the package itself stays light."""
    from transcf import interrupts

    interrupts.watch()
    import sys
    from io import TextIOWrapper

    from transcf.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal has no "±"
    _show_compiling()
    try:
        app()
    finally:
        interrupts.finish()


def _show_compiling() -> None:
    """Print messages of the kernels on stderr: compiling them can take a minute."""
    import logging

    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("transcf: %(message)s"))
    log = logging.getLogger("transcf.kernels")
    log.setLevel(logging.INFO)
    log.addHandler(lines)
    log.propagate = False
