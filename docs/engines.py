"""Writes into the guide which engines run which tasks: `python docs/engines.py`."""

from pathlib import Path

from worldline.env.task import reads_of
from worldline.physics.mjx import engine as mjx
from worldline.physics.warp import engine as warp
from worldline.tasks.registry import list_tasks, load_task

PAGE = Path(__file__).parent / "guides" / "engines.md"
BEGIN, END = "<!-- begin: python docs/engines.py -->\n", "<!-- end -->\n"


def table() -> str:
    """A line for each family of tasks, and for each thing that an engine lacks of some."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for name in list_tasks():
        task = load_task(name)
        refused = (engine.refusal(task.model, reads_of(task)) for engine in (mjx, warp))
        why = [line.partition(" lacks ")[2].partition("; use")[0] for line in refused]
        reasons.setdefault((name.partition("/")[0], *why), []).append(name)
    families = [family for family, *_ in reasons]
    lines = ["| tasks | on `mjx` | on `warp` |", "|---|---|---|"]
    for (family, *why), names in sorted(reasons.items()):
        each = ", ".join(f"`{name}`" for name in names)
        if not any(why):
            which = "all" if families.count(family) == 1 else "the other"
            each = f"`{family}/*`: {which} {len(names)}"
        said = (f"no: it lacks {lack}" if lack else "yes" for lack in why)
        lines.append(f"| {' | '.join((each, *said))} |")
    return "\n".join(lines) + "\n"


def written(page: str, text: str) -> str:
    """The page with another table."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), table()))
