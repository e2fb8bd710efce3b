"""The command line: parse, call the library, print."""


def main() -> None:
    """Run `transcf`; imported late, so that the package itself stays light."""
    from transcf.cli.app import app

    app()
