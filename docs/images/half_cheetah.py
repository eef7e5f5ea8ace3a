"""The picture of the first page: `python docs/images/half_cheetah.py RUN`.

RUN is a folder that `worldline train gym/half-cheetah` made.
"""

import sys
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from matplotlib.figure import Figure

from worldline.report import RunFolder

run = RunFolder.open(sys.argv[1])
rows = run.read_metrics()
evaluated = [row for row in rows if "eval/return" in row]
strip = imageio.imread(run.strip_file)
frames = strip[: strip.shape[0] // 2]  # the first of its two rows

figure = Figure(figsize=(10, 4.4), layout="constrained")
above, below = figure.subplots(2, 1, height_ratios=[1, 1.45])
above.imshow(frames)
above.axis("off")

steps, returns, spread = (
    np.array([row[name] for row in evaluated])
    for name in ("step", "eval/return", "eval/return_std")
)
steps = steps / 1e6
below.fill_between(steps, returns - spread, returns + spread, color="#1f5fa8", alpha=0.15, lw=0)
below.plot(steps, returns, color="#1f5fa8", marker="o", markersize=4)
below.set(xlim=(0, None), ylim=(0, None), xlabel="million environment steps", ylabel="return")
below.set_title(
    f"gym/half-cheetah, seed {run.config['seed']}: deterministic return {returns[-1]:.0f} "
    f"after {steps[-1]:.1f} million steps; band: one standard deviation over episodes",
    loc="left",
    fontsize=10,
)
below.grid(color="#e6e8eb")
below.set_axisbelow(True)
below.spines[["top", "right"]].set_visible(False)
figure.savefig(Path(__file__).with_name("half-cheetah.png"), dpi=150)
