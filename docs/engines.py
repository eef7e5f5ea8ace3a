"""Writes the table of tasks that MJX runs into the guide to engines: `python docs/engines.py`."""

from pathlib import Path

from worldline.env.task import reads_of
from worldline.physics.mjx import refusal
from worldline.tasks.registry import list_tasks, load_task

PAGE = Path(__file__).parent / "guides" / "engines.md"
BEGIN, END = "<!-- begin: python docs/engines.py -->\n", "<!-- end -->\n"


def table() -> str:
    """A line for each family of tasks, and for each thing that MJX lacks of some."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name in list_tasks():
        task = load_task(name)
        reads = reads_of(task)
        why = refusal(task.model, reads).partition(" lacks ")[2].partition("; use")[0]
        reasons.setdefault((name.partition("/")[0], why), []).append(name)
    families = [family for family, _ in reasons]
    lines = ["| tasks | on `mjx` |", "|---|---|"]
    for (family, why), names in sorted(reasons.items()):
        each = ", ".join(f"`{name}`" for name in names)
        if not why:
            which = "all" if families.count(family) == 1 else "the other"
            each = f"`{family}/*`: {which} {len(names)}"
        lines.append(f"| {each} | {f'no: it lacks {why}' if why else 'yes'} |")
    return "\n".join(lines) + "\n"


def written(page: str, text: str) -> str:
    """The page with another table."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), table()))
