"""The pictures of the tutorial: `python docs/images/tutorial.py`, which runs all of its code.

It works in a new folder below the current one, `tutorial/`; a few minutes on two cores.
"""

import os
import re
import subprocess
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from matplotlib.figure import Figure

from worldline.report import RunFolder

IMAGES = Path(__file__).resolve().parent
PAGE = IMAGES.parent / "tutorial.md"

Path("tutorial").mkdir()
os.chdir("tutorial")
done: dict = {"__name__": "tutorial"}
for kind, code in re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
    if kind == "sh":
        subprocess.run(["bash", "-euc", code], check=True)
    else:
        exec(compile(code, str(PAGE), "exec"), done)

strip = imageio.imread("runs/plain/episode.png")
imageio.imwrite(IMAGES / "tutorial-strip.png", strip[: strip.shape[0] // 2])

figure = Figure(figsize=(7, 2.6), layout="constrained")
axes = figure.subplots()
rows = RunFolder.open("runs/plain").read_metrics()
points = [(row["step"], row["eval/return"]) for row in rows if "eval/return" in row]
axes.plot(*zip(*points, strict=True), color="#1f5fa8", marker="o", markersize=4)
axes.set(xlim=(0, None), ylim=(0, 500), xlabel="environment steps", ylabel="return")
axes.grid(color="#e6e8eb")
figure.savefig(IMAGES / "tutorial-curve.png", dpi=120)

friction, masses, delays = done["FRICTION"], done["MASS"], done["DELAY"]
figure = Figure(figsize=(8, 4.6), layout="constrained")
grid = figure.subplots(2, len(delays))
for row, (title, returns) in enumerate({"plain": done["plain"], "rough": done["robust"]}.items()):
    for column, delay in enumerate(delays):
        panel = grid[row, column]
        picture = panel.imshow(returns[column], vmin=0, vmax=500, cmap="RdYlGn", aspect="auto")
        for (y, x), value in np.ndenumerate(returns[column]):
            panel.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=9)
        panel.set(xticks=range(len(masses)), yticks=range(len(friction)))
        panel.set(xticklabels=[f"{m:g}" for m in masses], yticklabels=[f"{f:g}" for f in friction])
        panel.set_title(f"{title}: {1000 * delay * 0.02:.0f} ms late", fontsize=10)
    grid[row, 0].set_ylabel("friction")
for panel in grid[-1]:
    panel.set_xlabel("load, kg")
figure.colorbar(picture, ax=grid, label="return of 500")
figure.savefig(IMAGES / "tutorial-robust.png", dpi=120)
