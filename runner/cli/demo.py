"""`runner demo`: hands its options to the demo, which makes a box of its own."""

import click

from runner.cli import options


@click.command()
@click.option(
    "--dir", "directory", default=".demo", show_default=True, metavar="D", help="Its box."
)
@click.option("--incident", is_flag=True, help="Replay the midnight incident: refused, untouched.")
@click.option("--full", is_flag=True, help="Fill 95 % of the context instead of 5 %.")
@click.option("--keep", is_flag=True, help="Leave the demo box running.")
@click.option("--stop", is_flag=True, help="End the demo box that was left running.")
@options.answers
def demo(
    directory: str,
    config: str | None,
    *,
    incident: bool,
    full: bool,
    keep: bool,
    stop: bool,
    as_json: bool,
) -> int:
    """The whole story on a demo box of its own; no process is touched that it did not start."""
    del config  # the demo writes one of its own
    from runner.demo import main  # noqa: PLC0415 - models and servers only where they are needed

    return main(
        {
            "dir": directory,
            "incident": incident,
            "full": full,
            "keep": keep,
            "stop": stop,
            "json": as_json,
        }
    )
