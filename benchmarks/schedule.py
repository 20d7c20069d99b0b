"""The schedule's promises: every zone, ten thousand rows, the idle daemon, a deleted input. Prints JSON.

`--quick` leaves out the days between two changes of the clocks, which are all alike.
"""

import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

from runner.demo import models
from runner.demo.parts import stand_in
from runner.journal import Journal
from runner.recovery import world
from runner.schedule.alarm import Alarm
from runner.schedule.cron import Cron
from runner.schedule.ledger import Ledger
from runner.schedule.moments import RealTimes
from runner.schedule.reconcile import Reconciler, Row, rows
from runner.settings import Settings

TIMES = ("0 0 * * *", "30 0 * * *", "30 1 * * *", "30 2 * * *", "30 23 * * *")
BEGIN, END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
ROWS = 10_000
DUE = 400
IDLE_S = 60.0
DELETIONS = 5
RUNNER = (str(Path(sys.executable).with_name("runner")),)


# Every zone


def _distinct_zones() -> list[str]:
    """One name of each set of rules; many zones are the same file under other names."""
    root = Path("/usr/share/zoneinfo")
    by_rules: dict[bytes, str] = {}
    for name in sorted(available_timezones()):
        path = root / name
        by_rules.setdefault(path.read_bytes() if path.is_file() else name.encode(), name)
    return sorted(by_rules.values())


def _wrong_dates(name: str) -> int:
    """Local dates of this zone on which one of the times does not fire exactly once."""
    zone = ZoneInfo(name)
    first = (BEGIN + timedelta(days=2)).astimezone(zone).date()
    last = (END - timedelta(days=2)).astimezone(zone).date()
    days = (last - first).days + 1
    wrong = 0
    for expression in TIMES:
        seen: dict[object, int] = {}
        for at in Cron(expression, zone).between(BEGIN, END):
            day = at.astimezone(zone).date()
            if first <= day <= last:
                seen[day] = seen.get(day, 0) + 1
        wrong += days - len(seen) + sum(count != 1 for count in seen.values())
    return wrong


def _zones() -> dict[str, tuple[float, float]]:
    names = _distinct_zones()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        wrong = sum(pool.map(_wrong_dates, names, chunksize=4))
    return {"dates_without_exactly_one_fire": (wrong, 0)}


# Ten thousand rows


def _many() -> tuple[Row, ...]:
    tables = [
        {"job": f"job-{n}", "cron": f"{n % 60} {n // 60 % 24} {n // 1440 % 28 + 1} * *"}
        for n in range(ROWS)
    ]
    return rows(Settings.model_validate({"timezone": "Europe/Berlin", "schedule": tables}))


def _next_fires_s(mine: tuple[Row, ...]) -> float:
    now = datetime.now(UTC)
    began = time.perf_counter()
    found = [row.cron.after(now) for row in mine]
    took = time.perf_counter() - began
    if not all(found):
        raise ValueError("a row never fires")
    return took


def _lateness_ms(mine: tuple[Row, ...], state: Path) -> Iterator[float]:
    """From the due moment until the loop has looked at every row and claimed what is due.

    Cron knows minutes; so that a benchmark need not wait for hours, some rows of the alarm are due
    at moments of the next seconds, while the ledger goes over all rows each time.
    """
    times, alarm = RealTimes(), Alarm()
    base = time.time() + 6.0
    moments = {f"due-{n}": base + n * 0.025 for n in range(DUE)}

    def once(at: float) -> object:
        def after(moment: datetime) -> datetime | None:
            when = datetime.fromtimestamp(at, UTC)
            return when if when > moment else None

        return after

    with Journal.open(state) as journal:
        reconciler = Reconciler(Ledger(journal), ZoneInfo("Europe/Berlin"))
        reconciler.follow(mine, times.moment())
        reconciler.due(times.moment())
        rest = {row.name: row.cron.after for row in mine[DUE:]}
        alarm.set(rest | {name: once(at) for name, at in moments.items()})
        left = dict(moments)
        while left and time.time() < base + 60:
            select.select([alarm.fd], [], [], 1.0)
            dropped = alarm.dropped()
            reconciler.due(times.moment())
            now = time.time()
            for name in dropped:
                if name in left:
                    yield (now - left.pop(name)) * 1000
    alarm.close()
    if left:
        raise ValueError(f"{len(left)} fires were lost")


def _rows(room: Path) -> dict[str, tuple[float, float]]:
    mine = _many()
    took = statistics.median(_next_fires_s(mine) for _ in range(3))
    late = sorted(_lateness_ms(mine, room / "many"))
    return {
        "next_fires_of_10000_rows_s": (took, 1.0),
        "lateness_p99_ms": (late[int(len(late) * 0.99)], 50),
        "lateness_median_ms": (statistics.median(late), 50),
    }


# The daemon


def _box(room: Path) -> tuple[Path, Path, int]:
    """A box with one service of the stand-in: runner.toml, the candidate's model, production's pid."""
    (room / "jobs").mkdir(parents=True)
    (model,) = models.write("mtp", room / "candidate.gguf")
    (served,) = models.write("plain", room / "llm.gguf")
    command = list(stand_in("a benchmark").command)
    port = _free_port()
    argv = [*command, "-m", str(served), "--host", "127.0.0.1", "--port", str(port), "-c", "4096"]
    (room / "jobs" / "night.toml").write_text(
        'question = "Does it run?"\n[candidate]\nkind = "llamacpp"\n'
        f"command = {json.dumps(command)}\nmodel = {json.dumps(str(model))}\n"
        f'port = {_free_port()}\ncontext = 4096\n[[claim]]\nkind = "context"\ntokens = 4096\n'
        "[workload]\nfill = [0.95]\n"
    )
    at = datetime.now(UTC) + timedelta(hours=13)
    config = room / "runner.toml"
    config.write_text(
        f'timezone = "UTC"\njobs_dir = "{room}/jobs"\nstate_dir = "{room}/state"\n'
        f'lock_name = "bench-{os.getpid()}"\n'
        '[alerts]\nunproven_delivery = "accept"\n'
        f'[[alerts.channel]]\nkind = "file"\npath = "{room}/alerts.log"\n'
        f'[[production]]\nname = "llm"\nkind = "llamacpp"\nport = {port}\n'
        f"command = {json.dumps(argv)}\n"
        f'supervisor = {{ kind = "process", log = "{room}/llm.log" }}\n'
        f'[[schedule]]\njob = "night"\ncron = "{at.minute} {at.hour} * * *"\n'
    )
    child = world.spawn(argv, environment=os.environ, cwd="/", log=room / "llm.log")
    child.returncode = 0
    return config, model, child.pid


def _free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port: int = asking.getsockname()[1]
        return port


def _wait(probe, within: float = 30.0) -> float:
    """Seconds until the probe is true."""
    began = time.monotonic()
    while not probe():
        if time.monotonic() - began > within:
            raise TimeoutError
        select.select([], [], [], 0.01)
    return time.monotonic() - began


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _daemon(room: Path) -> dict[str, tuple[float, float]]:
    config, model, production = _box(room)
    alerts, spool = room / "alerts.log", room / "state" / "spool"
    log = (room / "serve.log").open("wb")
    daemon = subprocess.Popen([*RUNNER, "--config", config, "serve"], stdout=log, stderr=log)
    try:
        looks = set()

        def settled() -> bool:
            if not (room / "state" / "journal.db").exists():
                return False
            with Journal.open(room / "state", read_only=True) as journal:
                known = Ledger(journal).fact("ahead:night")
            looks.update([known["at"]] if known else [])
            return len(looks) > 1 and not any(spool.iterdir())

        _wait(settled)
        began, cpu = time.monotonic(), _cpu_s(daemon.pid)
        select.select([], [], [], IDLE_S)
        share = (_cpu_s(daemon.pid) - cpu) / (time.monotonic() - began)
        rss = _rss_mib(daemon.pid)
        took = [_reported_s(model, alerts) for _ in range(DELETIONS)]
        asked = [_asked_ms(config, model) for _ in range(9)]
    finally:
        daemon.terminate()
        daemon.wait()
        os.kill(production, signal.SIGKILL)
        log.close()
    return {
        "idle_rss_mib": (rss, 60),
        "idle_cpu_percent_of_a_core": (share * 100, 0.1),
        "deleted_input_reported_s_worst": (max(took), 2.0),
        "may_i_ms_median": (statistics.median(asked), 150),
    }


def _reported_s(model: Path, alerts: Path) -> float:
    """From the deletion until the alert has arrived; then the file is put back."""
    before = alerts.read_text().count("WOULD BE REFUSED") if alerts.exists() else 0
    kept = model.read_bytes()
    model.unlink()
    took = _wait(lambda: alerts.exists() and alerts.read_text().count("WOULD BE REFUSED") > before)
    mended = alerts.read_text().count("would run again")
    model.write_bytes(kept)
    _wait(lambda: alerts.read_text().count("would run again") > mended)
    return took


def _asked_ms(config: Path, model: Path) -> float:
    began = time.perf_counter()
    words = [*RUNNER, "--config", config, "may-i", "delete", model]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=False)
    return (time.perf_counter() - began) * 1000


def main() -> None:
    """Measure; the zones last, since they take minutes."""
    numbers: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        room = Path(place)
        numbers |= _rows(room)
        numbers |= _daemon(room / "box")
    if "--quick" not in sys.argv:
        numbers |= _zones()
    print(
        json.dumps(
            {
                name: {"found": round(found, 3), "wanted_at_most": limit, "ok": found <= limit}
                for name, (found, limit) in numbers.items()
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
