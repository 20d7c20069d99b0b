"""`runner schema`: JSON Schema of the files a person writes, for editors and other programs."""

import click

from runner.cli import options, out


@click.command()
@click.argument("file", required=False, type=click.Choice(["runner", "job"]))
@options.answers
def schema(file: str | None, config: str | None, *, as_json: bool) -> int:
    """JSON Schema of runner.toml and of job files; of one of them where named."""
    del config, as_json  # a schema is JSON in any case, and no configuration changes it
    from runner.report.schema import schemas  # noqa: PLC0415 - pydantic only where it is needed

    both = schemas()
    out.answer(both[file] if file else both, "", as_json=True)
    return 0
