"""Who runs a verb: those that write run as the owner of the state directory, and nobody else.

Standard library only: recovery asks first. Files that root made would lock owners out of their own
box, and nothing of ours executes a recipe as root on behalf of somebody else.
"""

import os
import pwd
from contextlib import nullcontext
from pathlib import Path

from runner import credentials
from runner.recovery import sight as sights


class NotOwner(Exception):
    """The state directory belongs to somebody else, or cannot even be looked at."""

    def __init__(self, message: str, *, where: Path, remedy: str) -> None:
        super().__init__(message)
        self.message, self.where, self.remedy = message, str(where), remedy

    def __str__(self) -> str:
        """For people: where, what, and what to do."""
        return f"{self.where}: {self.message} → {self.remedy}"


def owner_of(state_dir: Path) -> int | None:
    """The uid that the state directory belongs to; None while there is none. Raises NotOwner."""
    try:
        return state_dir.stat().st_uid
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotOwner(
            f"cannot be looked at: {error.strerror}",
            where=state_dir,
            remedy="set state_dir in runner.toml to a directory you own",
        ) from error


def become_owner(state_dir: Path, *, config: Path | None = None, sight: bool = False) -> None:
    """Go on as the owner: root drops to that user, anybody else is refused. Raises NotOwner.

    Root takes along what the units would have: the credentials of the configuration where one is
    given, and with `sight` the leave to see what belongs to other users.
    """
    uid = owner_of(state_dir)
    me = os.geteuid()
    if uid is None or uid == me:
        return
    name = named(uid)
    if me != 0:
        raise NotOwner(
            f"belongs to {name}, and you are {named(me)}",
            where=state_dir,
            remedy=f"run this as {name}, or set state_dir in your own runner.toml",
        )
    _drop_to(uid, config, sight=sight)


def named(uid: int) -> str:
    """The name of a user, `uid 1234` where the box knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _drop_to(uid: int, config: Path | None, *, sight: bool) -> None:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        groups, gid, home = [uid], uid, "/"
    else:
        groups, gid, home = os.getgrouplist(user.pw_name, user.pw_gid), user.pw_gid, user.pw_dir
    if config is not None:
        credentials.lend(config, uid, gid)
    with sights.kept() if sight else nullcontext():
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    # The rest of root's environment would lead back into root's home.
    for name in [name for name in os.environ if name.startswith(("XDG_", "SUDO_", "DBUS_"))]:
        del os.environ[name]
    os.environ.update({"HOME": home, "USER": named(uid), "LOGNAME": named(uid)})
    session = Path(f"/run/user/{uid}")
    if session.is_dir():
        os.environ["XDG_RUNTIME_DIR"] = str(session)
