"""The rules of the architecture, as functions from source text to findings. Read by test_rules.

A rule gets a file's path, relative to the repository and with forward slashes, and its syntax
tree; it yields (line, sentence) for each finding.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("preflight", "jobs", "alerts", "runner")

Finding = tuple[int, str]
Rule = Callable[[str, ast.Module], Iterator[Finding]]

LONGEST = 350
LONGER: dict[str, str] = {}
"""Files that may be longer than LONGEST lines, each with the reason why it reads better whole."""

PRINTS = (
    "runner/cli/",
    "runner/entry.py",
    "runner/__main__.py",
    "runner/recovery/command.py",  # the verbs that must work when nothing else imports
    "runner/recovery/__main__.py",
    "runner/demo/standin/",  # a program of its own, started as a child
    "preflight/linux/nvml.py",  # likewise
)
STARTS = (
    "runner/",
    "preflight/",  # read-only probes with a deadline, by exec
    "alerts/program.py",  # a person's own mailer: a channel is what it is for
)
ENDS = (
    "runner/",
    "preflight/linux/probe.py",  # its own child, when its time is over
    "alerts/program.py",  # likewise
)
WAITS = ("runner/until.py",)
TABLES = {
    "alerts": "AnyChannel",
    "preflight": "AnyCheck",
    "jobs/servers": "AnyServer",
    "jobs/claims": "AnyClaim",
    "runner/supervisors": "AnySupervisor",
}
"""Folder of an extension point -> the table that must name each of its kinds."""

STARTING = {"os.fork", "os.forkpty", "os.system", "os.popen", "os.posix_spawn", "os.posix_spawnp"}
ENDING = {"os.kill", "os.killpg", "signal.pidfd_send_signal", "signal.pthread_kill"}
WAITING = {"time.sleep", "asyncio.sleep", "signal.sigtimedwait", "signal.sigwait", "signal.pause"}

RECOVERY_ROOTS = (
    "alerts.deliver",
    "alerts.plain",
    "preflight.linux.proc",
    "runner.__main__",
    "runner.entry",
    "runner.journal",
    "runner.outcome",
    "runner.recovery",
    "runner.until",
    "runner.where",
)
"""What must work with the standard library only, and with it everything that these import."""
FULL_RUNNER = ("runner.entry", "runner.cli.app")
"""The one import that leaves that circle, taken when the verb is none of recovery's."""


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module and name that a tree imports, dotted, wherever in the file: (line, name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Imports, and what is reached through an imported name, as `os.kill`: (line, dotted name)."""
    yield from imported(tree)
    local = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            local |= {alias.asname or _top(alias.name): alias.name for alias in node.names}
    for node in ast.walk(tree):
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Attribute) and isinstance(owner, ast.Name) and owner.id in local:
            yield node.lineno, f"{local[owner.id]}.{node.attr}"


def called(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Every call of a plain name or of a method, by its last name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node, node.func.id
            elif isinstance(node.func, ast.Attribute):
                yield node, node.func.attr


def _in(path: str, places: Iterable[str]) -> bool:
    return any(
        path == place or (place.endswith("/") and path.startswith(place)) for place in places
    )


def _top(name: str) -> str:
    return name.partition(".")[0]


def only_some_start_processes(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Processes are started in runner; preflight may run a probe, a channel a person's mailer."""
    for line, name in used(tree):
        fork = name in {"os.fork", "os.forkpty"} or _top(name) == "multiprocessing"
        if fork and not path.startswith("runner/"):
            yield line, f"{name}: a forked child would hold our lock"
        elif (_top(name) == "subprocess" or name in STARTING) and not _in(path, STARTS):
            yield line, f"{name}: only {', '.join(STARTS)} may start a process"


def only_runner_ends_processes(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Signals are sent and caught in runner."""
    for line, name in used(tree):
        if (name in ENDING or _top(name) == "signal") and not _in(path, ENDS):
            yield line, f"{name}: only {', '.join(ENDS)} may signal"


def _confined(library: str, places: tuple[str, ...]) -> Rule:
    def rule(path: str, tree: ast.Module) -> Iterator[Finding]:
        for line, name in imported(tree):
            if _top(name) == library and not _in(path, places):
                yield line, f"{library} belongs in {', '.join(places)}"

    rule.__name__ = f"{library}_is_confined"
    return rule


def one_place_waits(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Only until waits; a poll that returns at once is a look."""
    if _in(path, WAITS):
        return
    for line, name in used(tree):
        if name in WAITING or _top(name) in {"sched", "selectors"}:
            yield line, f"{name}: waiting belongs in {WAITS[0]}"
    for call, name in called(tree):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name == "select" and isinstance(owner, ast.Name) and owner.id == "select":
            last = call.args[-1]
            if not (len(call.args) == 4 and isinstance(last, ast.Constant) and last.value == 0):
                yield call.lineno, f"select.select that waits: it belongs in {WAITS[0]}"


def only_the_command_line_prints_and_exits(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Everything else returns what is to be shown."""
    if _in(path, PRINTS):
        return
    for line, name in used(tree):
        if name in {"sys.exit", "os._exit"}:
            yield line, f"{name} belongs in {', '.join(PRINTS)}"
    for call, name in called(tree):
        if isinstance(call.func, ast.Name) and name in {"print", "exit", "quit"}:
            yield call.lineno, f"{name}() belongs in {', '.join(PRINTS)}"


def logging_is_configured_once(path: str, tree: ast.Module) -> Iterator[Finding]:
    """One file decides where log lines go, and what is hidden in them."""
    if path == "runner/logs.py":
        return
    for line, name in used(tree):
        if name in {"structlog.configure", "logging.basicConfig", "logging.config"}:
            yield line, f"{name} belongs in runner/logs.py"


def no_globs(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """Explicit paths, never globs: the incident's restore found two models by one."""
    for line, name in imported(tree):
        if _top(name) in {"glob", "fnmatch"}:
            yield line, f"{name}: explicit paths, never globs"
    for call, name in called(tree):
        if name in {"glob", "rglob"}:
            yield call.lineno, f".{name}(): explicit paths, never globs"


def no_patching(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """Tests fake the box, the world and the clock, and nothing of our own."""
    ours = set(PACKAGES)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and _top(node.module) in PACKAGES:
            ours |= {alias.asname or alias.name for alias in node.names}
    for line, name in imported(tree):
        if name.startswith("unittest.mock") or _top(name) == "mock":
            yield line, f"{name}: hand in a fake instead"
    for call, name in called(tree):
        target = ast.unparse(call.args[0]).strip("'\"") if name == "setattr" and call.args else ""
        if _top(target) in ours and not _is_data(call.args[-1]):
            yield call.lineno, f"monkeypatch of {target}: hand in a fake instead"


def _is_data(value: ast.expr) -> bool:
    """A fresh container, constant or path replaces a module's memory, and no behaviour."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {"set", "dict", "list"}
    return isinstance(value, ast.Constant | ast.List | ast.Dict | ast.Set | ast.Tuple | ast.BinOp)


def tests_say_what_they_show(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """Every test has a docstring of one sentence or more."""
    for node in ast.walk(tree):
        test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if test and not ast.get_docstring(node):
            yield node.lineno, f"{node.name} has no docstring"


SOURCE_RULES: tuple[Rule, ...] = (
    only_some_start_processes,
    only_runner_ends_processes,
    _confined("psutil", ("preflight/linux/box.py",)),
    _confined("telegram", ("alerts/telegram.py",)),
    _confined("apscheduler", ("runner/schedule/", "runner/schedule.py")),
    one_place_waits,
    only_the_command_line_prints_and_exits,
    logging_is_configured_once,
    no_globs,
)
TEST_RULES: tuple[Rule, ...] = (no_patching, tests_say_what_they_show)


def unlisted(folder: str, table: str, sources: dict[str, ast.Module]) -> Iterator[str]:
    """Classes with a `kind: Literal[…]` that the folder's table does not name."""
    listed: set[str] = set()
    kinds: list[tuple[str, str]] = []
    for path, tree in sources.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if isinstance(target, ast.Name) and target.id == table and node.value:
                    names = ast.walk(node.value)
                    listed |= {name.id for name in names if isinstance(name, ast.Name)}
            if isinstance(node, ast.ClassDef) and _has_kind(node):
                kinds.append((path, node.name))
    for path, name in kinds:
        if name not in listed:
            yield f"{path}: {name} is not in {folder}'s table {table}"


def _has_kind(node: ast.ClassDef) -> bool:
    return any(
        isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and line.target.id == "kind"
        and "Literal" in ast.unparse(line.annotation)
        for line in node.body
    )


def foreign_imports(
    roots: Iterable[str], modules: dict[str, ast.Module], beyond: tuple[str, str] = FULL_RUNNER
) -> Iterator[str]:
    """What the roots, and all of ours that they import, import beyond the standard library."""
    todo, seen = [name for name in modules if _in_packages(name, roots)], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        parents = [".".join(name.split(".")[:count]) for count in range(1, name.count(".") + 1)]
        todo += [parent for parent in parents if parent in modules]
        for line, wanted in imported(modules[name]):
            ours = _module_of(wanted, modules)
            if ours == beyond[1] and name == beyond[0]:
                continue
            if ours:
                todo.append(ours)
            elif _top(wanted) not in sys.stdlib_module_names:
                yield f"{name}:{line}: {wanted} is not of the standard library"


def _in_packages(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def _module_of(name: str, modules: dict[str, ast.Module]) -> str | None:
    while name:
        if name in modules:
            return name
        name = name.rpartition(".")[0]
    return None


_IGNORE = re.compile(r"#\s*(noqa|type:\s*ignore)\b")
_REASONED = re.compile(
    r"#\s*(?:noqa: [A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*|type: ignore\[[\w, -]+\])[\s#-]+\S.{7,}"
)
_RULE = re.compile(r'"[A-Z]+[0-9]*"')


def ignores_without_reason(text: str) -> Iterator[Finding]:
    """Each `noqa` and `type: ignore` names its rule and says why, in the same comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        ignoring = token.type == tokenize.COMMENT and _IGNORE.search(token.string)
        if ignoring and not _REASONED.search(token.string):
            yield token.start[0], f"an ignore without its reason: {token.string}"


def settings_without_reason(pyproject: str) -> Iterator[Finding]:
    """Each rule that ruff is told to ignore stands on a line of its own, with its reason."""
    section = ""
    for number, line in enumerate(pyproject.splitlines(), 1):
        if line.startswith("["):
            section = line
        elif section.startswith("[tool.ruff.lint") and not line.startswith("select"):
            rules = _RULE.findall(line)
            if rules and (len(rules) > 1 or not re.search(r"#\s*\S.{7,}", line)):
                yield number, f"no reason: {line.strip()}"


def places_in_lock(text: str) -> Iterator[Finding]:
    """A lock file names packages and hashes, and no place to get them from."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"://|index-url|find-links|trusted-host|(^|\s)(file:)?/\w", line):
            yield number, f"a place in a lock file: {line.strip()}"
