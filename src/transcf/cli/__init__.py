"""The command line: parse, call the library, print."""


def main() -> None:
    """Run `transcf`; imported late, so that the package itself stays light."""
    from transcf import interrupts

    interrupts.watch()
    import sys
    from io import TextIOWrapper

    from transcf.cli._compiling import show_compiling
    from transcf.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal has no "±"
    show_compiling()
    try:
        app()
    finally:
        interrupts.finish()
