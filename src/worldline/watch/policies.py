"""The policies of a run that may still be training: which there are, and when one is new."""

from __future__ import annotations

from pathlib import Path

from worldline.errors import RunError
from worldline.export.policy_file import (
    BEST_FILE,
    POLICIES_FOLDER,
    load_policy,
    policy_about,
    policy_file,
)
from worldline.learn.policy import Policy

#: The choice that follows a training: the policy of the last evaluation, whichever that is.
NEWEST = "newest"

#: The policy with the highest evaluation so far, which is followed too.
BEST = "best"


class PolicyFollower:
    """Reads the chosen policy of a run again whenever its file is replaced.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.choice = NEWEST
        self.note = "no policy yet: waiting for the run's first evaluation"
        """Which policy is in use, or why there is none."""
        self._known: tuple[str, int, int, int] | None = None

    def follow(self, folder: Path) -> None:
        """Follows the newest policy of another run."""
        self._folder, self.choice, self._known = folder, NEWEST, None
        self.note = "no policy yet: waiting for the run's first evaluation"

    def choices(self) -> list[str]:
        """What there is to choose from now, the latest first."""
        files = (self._folder / POLICIES_FOLDER).glob("step-*.npz")
        names = (file.stem.removeprefix("step-") for file in files)
        steps = sorted((int(name) for name in names if name.isdigit()), reverse=True)
        best = [BEST] if (self._folder / BEST_FILE).is_file() else []
        return [NEWEST, *best, *map(str, steps)]

    def poll(self) -> Policy | None:
        """The chosen policy if it was not given before; else None.

        A file that cannot be read is an error once, in `note`; the policy in use stays in use.
        """
        try:
            file = policy_file(self._folder, "last" if self.choice == NEWEST else self.choice)
            stat = file.stat()
        except (RunError, OSError):
            return None
        known = (str(file), stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if known == self._known:
            return None
        self._known = known
        try:
            policy, about = load_policy(file), policy_about(file)
        except (RunError, OSError) as error:
            self.note = str(error)
            return None
        self.note = self.choice if self.choice in (NEWEST, BEST) else "chosen"
        if "step" in about:
            self.note += f", after {about['step']:,} steps"
        if about.get("return") is not None:
            self.note += f", evaluated at {about['return']:.1f}"
        return policy
