"""The box of the examples in deploy/, and how these are made: python -m runner.units.example."""

from pathlib import Path

from runner.units import texts
from runner.units.place import Place

DEPLOY = Path(__file__).parents[2] / "deploy"

BOX = Place(
    program="/opt/runner/bin/runner",
    config="/etc/runner/runner.toml",
    state_dir="/var/lib/runner",
    services=("llama.service",),
    credentials=("telegram-token",),
    groups=("video", "render"),
)


def files() -> dict[Path, str]:
    """Where each example lies in the repository → its text."""
    rooms = {".rules": "polkit-1"}
    return {
        DEPLOY / rooms.get(Path(path).suffix, "systemd") / Path(path).name: text
        for path, text in texts.all_files(BOX).items()
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
