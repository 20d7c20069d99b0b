"""`runner install-units`: the systemd units and the polkit rule for this box, shown or written."""

import json
import os
import pwd
from pathlib import Path
from typing import Any

import click

from runner.cli import options, out
from runner.files import make_state_dir
from runner.recovery.files import write_durably

_READABLE = 0o644


@click.command("install-units")
@click.option("--print", "show", is_flag=True, help="Print the files; the default.")
@click.option("--write", is_flag=True, help="Write the files; only root can.")
@click.option("--user", metavar="NAME", help="Whom the units run as (default: the state's owner).")
@click.option(
    "--root",
    metavar="DIR",
    default="/",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Write below DIR, as for an image.",
)
@options.answers
def install_units(
    config: str | None, user: str | None, root: Path, *, show: bool, write: bool, as_json: bool
) -> int:
    """Units and rule for this box: its production, its user, its groups, its paths."""
    if show and write:
        raise click.UsageError("use either --print or --write")
    settings = options.settings(config)
    path = options.config_path(config)
    from runner.units import texts  # noqa: PLC0415 - after a broken config has been told
    from runner.units.compare import ENABLED  # noqa: PLC0415 - likewise
    from runner.units.place import place_of  # noqa: PLC0415 - likewise

    place = place_of(path, settings, user=user)
    files = texts.all_files(place)
    if not write:
        # as it stands: redaction would take the name of a credential for one
        printed = "\n".join(f"# {path}\n{text}" for path, text in files.items())
        out.verbatim(f"{json.dumps({'files': files}, indent=2)}\n" if as_json else printed)
        return 0
    if root == Path("/"):
        _refuse_unknown_user(place.user, place.state_dir)
    states = {path: _write(root / path.lstrip("/"), text) for path, text in files.items()}
    if root == Path("/"):
        _make_state_dir(Path(place.state_dir), place.user)
    steps = ["systemctl daemon-reload", f"systemctl enable --now {' '.join(ENABLED)}"]
    answer: dict[str, Any] = {"written": states, "next": steps}
    lines = [f"{state:>9}  {path}" for path, state in states.items()]
    out.answer(answer, [*lines, "", "Next:", *(f"  {step}" for step in steps)], as_json=as_json)
    return 0


def _refuse_unknown_user(user: str, state_dir: str) -> None:
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise out.Failure(
            f"there is no user {user} on this box",
            where="install-units",
            remedy=f"useradd --system --home-dir {state_dir} --shell /usr/sbin/nologin {user}",
        ) from None


def _make_state_dir(path: Path, user: str) -> None:
    """The state directory, of that user from the beginning: then root's verbs know whom to become.

    One that is there already stays as it is. Raises Failure.
    """
    if path.exists():
        return
    owner = pwd.getpwnam(user)
    try:
        make_state_dir(path)
        for room in (path, *path.iterdir()):
            os.chown(room, owner.pw_uid, owner.pw_gid)
    except OSError as error:
        raise out.Failure(f"cannot be made: {error.strerror}", where=str(path)) from error


def _write(path: Path, text: str) -> str:
    """Write one file; whether it was there, and as it is now. Raises Failure."""
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
        if before == text:
            return "unchanged"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, text.encode(), _READABLE)
    except OSError as error:
        raise out.Failure(
            f"cannot be written: {error.strerror or error}",
            where=str(path),
            remedy="run this as root" if os.geteuid() else "",
        ) from error
    return "new" if before is None else "replaced"
