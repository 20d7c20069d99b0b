"""What is wrong with a file a person wrote: one sentence each, with its line. Knows no model and no TOML."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a configuration, and what to do about it."""

    file: str
    line: int | None
    key: str
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, str | int | None]:
        """The problem as the plain JSON object of `--json` answers."""
        return {
            "file": self.file,
            "line": self.line,
            "key": self.key,
            "message": self.message,
            "remedy": self.remedy,
        }


def render(problem: Problem) -> str:
    """`file:line: key: what is wrong → what to do`, leaving out the parts that are not known."""
    where = problem.file
    if problem.line is not None:
        where = f"{where}:{problem.line}" if where else f"line {problem.line}"
    head = ": ".join(part for part in (where, problem.key, problem.message) if part)
    return f"{head} → {problem.remedy}" if problem.remedy else head


class ConfigError(Exception):
    """A file that a person wrote cannot be used; nothing was touched."""

    def __init__(self, problems: list[Problem] | tuple[Problem, ...] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(render(problem) for problem in self.problems))
