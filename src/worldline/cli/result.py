"""What the command line prints at the end of a run."""

from __future__ import annotations

from worldline.export.policy_file import POLICY_FILE
from worldline.parallel.cluster import is_first
from worldline.report import RunFolder
from worldline.report.progress import short
from worldline.train import Result


def print_result(name: str, result: Result) -> None:
    """Prints the return and the files of a run, in the first of its processes."""
    if not is_first():
        return
    returns = result.evaluation.episode_return  # (episodes,) or (seeds, episodes)
    each = f" of each of {returns.shape[0]} seeds" if returns.ndim > 1 else ""
    print(
        f"{name}: return {short(float(returns.mean()))} +- {short(float(returns.std()))} "
        f"({returns.shape[-1]} episodes{each}, deterministic) after {result.steps:,} steps "
        f"in {result.seconds:.0f} s" + (", interrupted" if result.interrupted else "")
    )
    run = RunFolder(result.folder)
    files = {"curve": run.curves_file, "video": run.video_file, "strip": run.strip_file}
    files["page"] = run.page_file
    for what, file in {**files, "policy": run.path / POLICY_FILE}.items():
        if file.exists():
            print(f"  {what:7}{file}")
    print(f"  {result.video_note}")
