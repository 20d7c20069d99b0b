"""The files themselves, made from one box's facts. Pure; why a line is there stands beside it.

Order and names are systemd's. A unit inherits nothing from another here: what they share is
written down once below and put into each.
"""

from runner.outcome import MEANINGS
from runner.units.place import MEMBERS, Place

UNITS = "/etc/systemd/system"
RULE = "/etc/polkit-1/rules.d/50-runner.rules"

NAME = "[A-Za-z0-9_][A-Za-z0-9_-]*"
"""What a job or a run may be called, in the name of its unit."""

_ALWAYS = """\
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
"""
# Not ProtectClock= where a GPU is looked at or used: it implies a list of devices, without the GPU.

_SIGHT = """\
# Preflight must see who owns a port and a file, also where that is another user, and what the
# kernel has said of the GPU.
CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_SYSLOG
AmbientCapabilities=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_SYSLOG
"""

_BLIND = """\
ProtectKernelLogs=yes
CapabilityBoundingSet=
AmbientCapabilities=
"""

_ASK_FOR_RECOVERY = """\
# Whatever ended this: look whether production is owed. The request is root's, the work is not.
ExecStopPost=+-/usr/bin/systemctl start --no-block runner-recover.service
"""

_AFTER_THE_BUS = "After=dbus.socket dbus.service network.target"
# Units stop in reverse order: the bus is still there while these bring production back.


def all_files(place: Place) -> dict[str, str]:
    """Path on the box → text, in the order in which they are to be read."""
    units = {
        "runner.service": _daemon(place),
        "runner-run@.service": _run(place),
        "runner-guardian@.service": _guardian(place),
        "runner-recover.service": _recover(place),
        "runner-recover.timer": _timer(),
        "runner-tell@.service": _tell(place),
    }
    return {f"{UNITS}/{name}": text for name, text in units.items()} | {RULE: _rule(place)}


def _start(place: Place, verb: str) -> str:
    return f"ExecStart={place.program} --config {place.config} {verb}\n"


def _owner(place: Place) -> str:
    """Who it runs as, and its state directory: others pass through it to what is public."""
    said = f"User={place.user}\n"
    if place.groups:
        said += f"SupplementaryGroups={' '.join(place.groups)}\n"
    if name := place.state_name:
        said += f"StateDirectory={name}\nStateDirectoryMode=0711\n"
    return said + "UMask=0077\n"


def _secrets(place: Place) -> str:
    """Readable for this unit alone. Without the default a missing file would keep it from starting."""
    return "".join(
        f"LoadCredential={name}:{place.secret_file(name)}\nSetCredential={name}:none\n"
        for name in place.credentials
    )


def _read_only(place: Place) -> str:
    """A read-only file system but for the state directory and what alerts are written to."""
    if place.mails:
        return "ProtectSystem=full\n"
    rooms = [f"-{room}" for room in place.written]
    if place.state_name is None:
        rooms.insert(0, place.state_dir)
    return "ProtectSystem=strict\n" + (f"ReadWritePaths={' '.join(rooms)}\n" if rooms else "")


def _daemon(place: Place) -> str:
    return (
        """\
[Unit]
Description=runner: fires validation jobs
Wants=runner-recover.service
After=runner-recover.service network.target
StartLimitIntervalSec=0

[Service]
Type=notify
"""
        + _start(place, "serve")
        + """\
Restart=always
RestartSec=5
WatchdogSec=30
TimeoutStopSec=20
KillMode=mixed
OOMPolicy=continue
OOMScoreAdjust=-500
"""
        + _owner(place)
        + _secrets(place)
        + _ASK_FOR_RECOVERY
        + "NoNewPrivileges=yes\n"
        + _read_only(place)
        + """\
ProtectHome=read-only
PrivateTmp=no
ProtectControlGroups=yes
# @clock: preflight asks how well the clock is kept. To set it needs a capability.
SystemCallFilter=@system-service @clock
"""
        + _ALWAYS
        + _SIGHT
        + """\

[Install]
WantedBy=multi-user.target
"""
    )


def _run(place: Place) -> str:
    codes = " ".join(str(code) for code in sorted(MEANINGS) if code)
    return (
        f"""\
# One run of a job, which is the instance: systemctl start runner-run@200k-mtp.service
# To stop it is to cancel it: production is brought back first, however long that takes.
[Unit]
Description=runner: one run of job %i
{_AFTER_THE_BUS}
StartLimitIntervalSec=0
# A run that is over is forgotten, so that the next one of the job can start.
CollectMode=inactive-or-failed

[Service]
Type=notify
"""
        + _start(place, "run %i")
        + f"""\
# Every outcome is a run that did its work; `runner history` tells which.
SuccessExitStatus={codes}
Restart=no
TimeoutStartSec=60
TimeoutStopSec=30
KillMode=mixed
OOMPolicy=continue
OOMScoreAdjust=-500
"""
        + _owner(place)
        + _secrets(place)
        + _ASK_FOR_RECOVERY
        + """\
NoNewPrivileges=yes
ProtectSystem=full
"""
        + _ALWAYS
        + _SIGHT
    )


def _guardian(place: Place) -> str:
    return (
        f"""\
# Started by a run, which is the instance; it is the parent of the run's candidate.
# The candidate inherits its sandbox: no PrivateDevices=, ProtectHome=, PrivateTmp=,
# MemoryDenyWriteExecute= or SystemCallFilter= here.
[Unit]
Description=runner: guardian of run %i
{_AFTER_THE_BUS}
StartLimitIntervalSec=0
CollectMode=inactive-or-failed
# It ends when its run lets it go, and at a shutdown.
RefuseManualStop=yes

[Service]
# Its start is its acknowledgement: it returns when the guardian is armed.
Type=notify
WatchdogSec=30
WatchdogSignal=SIGKILL
"""
        + _start(place, "guardian %i")
        + """\
Restart=no
TimeoutStartSec=30
TimeoutStopSec=30
KillMode=mixed
# A cgroup of its own for the candidate, to be ended as a whole.
Delegate=yes
# A server that locks its model in memory may do so under validation too.
LimitMEMLOCK=infinity
OOMPolicy=continue
OOMScoreAdjust=-900
"""
        + _owner(place)
        + _secrets(place)
        + _ASK_FOR_RECOVERY
        + """\
NoNewPrivileges=yes
ProtectSystem=full
"""
        + _ALWAYS
        + _BLIND
    )


def _recover(place: Place) -> str:
    return (
        f"""\
[Unit]
Description=runner: bring production back if a dead run owes it
{_AFTER_THE_BUS}
Before=runner.service
StartLimitIntervalSec=0
# With nothing owed, nothing starts.
ConditionPathExists={place.state_dir}/recovery.json

[Service]
Type=oneshot
"""
        + _start(place, "recover")
        + """\
TimeoutStartSec=infinity
TimeoutStopSec=30
OOMPolicy=continue
OOMScoreAdjust=-900
"""
        + _owner(place)
        + _secrets(place)
        + """\
NoNewPrivileges=yes
ProtectSystem=full
"""
        + _ALWAYS
        + _BLIND
        + """\

[Install]
WantedBy=multi-user.target
"""
    )


def _timer() -> str:
    return """\
# The net below all others: should every request for a recovery be lost, this one comes.
[Unit]
Description=runner: look every 30 s whether production is owed

[Timer]
OnBootSec=30s
OnUnitActiveSec=30s
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


def _tell(place: Place) -> str:
    return (
        """\
# Delivers what stands in the outbox, apart from whoever put it there.
[Unit]
Description=runner: tell about %i
After=network.target
StartLimitIntervalSec=0
CollectMode=inactive-or-failed

[Service]
Type=oneshot
"""
        + _start(place, "tell %i")
        + """\
TimeoutStartSec=120
"""
        + _owner(place)
        + _secrets(place)
        + "NoNewPrivileges=yes\n"
        + _read_only(place)
        + """\
ProtectControlGroups=yes
ProtectClock=yes
PrivateDevices=yes
SystemCallFilter=@system-service
"""
        + _ALWAYS
        + _BLIND
    )


def _rule(place: Place) -> str:
    services = ", ".join(f'"{unit}"' for unit in place.services)
    return f"""\
// runner: written by `runner install-units`. The services are those of {place.config}.
polkit.addRule(function (action, subject) {{
    if (action.id != "org.freedesktop.systemd1.manage-units") return;
    var unit = action.lookup("unit"), verb = action.lookup("verb");
    var services = [{services}];
    var ours = /^(runner-(run|guardian|tell)@{NAME}\\.service|runner-recover\\.service)$/;
    if (subject.user == "{place.user}") {{
        if (services.indexOf(unit) >= 0 && ["start", "stop", "reset-failed"].indexOf(verb) >= 0)
            return polkit.Result.YES;
        if (ours.test(unit) && verb == "start") return polkit.Result.YES;
    }}
    // Members start a run and cancel it: a stop brings production back first.
    if (subject.isInGroup("{MEMBERS}") && ["start", "stop"].indexOf(verb) >= 0
            && /^runner-run@{NAME}\\.service$/.test(unit))
        return polkit.Result.YES;
}});
"""
