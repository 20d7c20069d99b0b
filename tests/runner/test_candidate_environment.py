"""What a candidate inherits from whoever runs us."""

import os

from runner import secrets
from runner.candidate import usual


def test_a_candidate_inherits_no_secret_and_nothing_that_configures_it_unseen() -> None:
    """A token named by an environment variable is ours; LLAMA_ARG_* would change the server."""
    secrets.keep(["canary-value-one"])
    given = {
        "PATH": "/usr/bin",
        "LD_LIBRARY_PATH": "/opt/cuda/lib64",
        "TELEGRAM_TOKEN": "123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "ALERTS": "canary-value-one",
        "LLAMA_ARG_CTX_SIZE": "4096",
        "NOTIFY_SOCKET": "/run/systemd/notify",
    }
    assert usual(given) == {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/opt/cuda/lib64"}


def test_a_path_that_is_no_utf8_is_handed_on() -> None:
    """It cannot be written down as it is, and that makes no secret of it."""
    given = {"LD_LIBRARY_PATH": os.fsdecode(b"/opt/ol\xe9")}
    assert usual(given) == given
