"""`runner status` and `runner recover` where the entry point did not take them first.

It does so before any third-party import; these are for `--help` and for callers of the app.
"""

import click

from runner import entry

_AS_IT_STANDS = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings={**_AS_IT_STANDS, "help_option_names": []})
@click.pass_context
def status(ctx: click.Context) -> int:
    """Is production serving now, and is anything owed, running, drained or untold?"""
    return _handed_on(ctx, "status")


@click.command(context_settings={**_AS_IT_STANDS, "help_option_names": []})
@click.pass_context
def recover(ctx: click.Context) -> int:
    """Bring production back if a dead run owes it; harmless in every other case."""
    return _handed_on(ctx, "recover")


def _handed_on(ctx: click.Context, verb: str) -> int:
    config = (ctx.find_root().obj or {}).get("config")
    before = ["--config", config] if config else []
    return entry.run([*before, verb, *ctx.args])
