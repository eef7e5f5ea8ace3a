"""What a training run leaves behind and shows: run folder, progress, learning curves, video."""

from worldline.report.figures import plot_curves as plot_curves
from worldline.report.progress import ProgressDisplay as ProgressDisplay
from worldline.report.run_folder import RunFolder as RunFolder
from worldline.report.video import Clip as Clip
from worldline.report.video import render_episode as render_episode
