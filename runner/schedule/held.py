"""Whether a run or a recovery has the box: then what a look finds tells nothing of a coming run."""

from pathlib import Path

from runner.recovery import lock, recipe
from runner.settings import Settings


def is_held(settings: Settings) -> bool:
    """Whether somebody is at work on the box, or still owes production."""
    state_dir = Path(settings.state_dir)
    return (
        lock.holder(state_dir) is not None
        or (state_dir / recipe.NAME).exists()
        or lock.box_holder(settings.lock_name) is not None
    )
