"""What a training run leaves behind and shows: run folder, progress, learning curves, video."""

from worldline.report.figures import plot_curves
from worldline.report.progress import ProgressDisplay
from worldline.report.run_folder import RunFolder
from worldline.report.video import Clip, render_episode

__all__ = [
    "Clip",
    "ProgressDisplay",
    "RunFolder",
    "plot_curves",
    "render_episode",
]
