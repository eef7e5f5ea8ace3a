"""Pictures put together: frames side by side, with their times, on one sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from worldline.files import whole_file
from worldline.rendering.scene import NDArray

#: White pixels between the pictures of a montage.
_GAP = 4


def grid_shape(count: int) -> tuple[int, int]:
    """Rows and columns of a grid for so many pictures, as near to a square as can be."""
    columns = math.ceil(math.sqrt(count))
    return math.ceil(count / columns), columns


def in_grid(pictures: Sequence[NDArray]) -> NDArray:
    """Pictures of one size in a grid, row by row; what is left over is white."""
    rows, columns = grid_shape(len(pictures))
    blank = np.full_like(pictures[0], 255)
    cells = [*pictures, *[blank] * (rows * columns - len(pictures))]
    strips = [np.concatenate(cells[i : i + columns], axis=1) for i in range(0, len(cells), columns)]
    return np.concatenate(strips)


def with_views(scene: NDArray, views: Sequence[NDArray]) -> NDArray:
    """A frame with the views of its moment on its right, each pixel of theirs a square."""
    if not views:
        return scene
    height = len(scene)
    cell = height // max(len(views), 2) // 2 * 2
    column = np.full((height, cell, 3), 255, np.uint8)
    for place, view in enumerate(views):
        picture = enlarged(view, cell)
        column[place * cell :][: len(picture), : picture.shape[1]] = picture
    return np.concatenate([scene, column], axis=1)


def with_time(frame: NDArray, seconds: float, most: int) -> NDArray:
    """A frame with its time written on it, made smaller where it is higher than `most` pixels."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(frame)
    if picture.height > most:
        picture = picture.resize((round(picture.width * most / picture.height), most))
    width, height = picture.size
    ImageDraw.Draw(picture).text(
        (width * 0.025, height * 0.025),
        f"{seconds:.2f} s",
        font=ImageFont.load_default(height / 16),
        fill="white",
        stroke_width=height / 200,
        stroke_fill="black",
    )
    return np.asarray(picture)


def enlarged(picture: NDArray, side: int) -> NDArray:
    """A picture `(height, width, 3)` as large as fits a square of `side` pixels, unsmoothed."""
    from PIL import Image, ImageOps

    nearest = Image.Resampling.NEAREST
    return np.asarray(ImageOps.contain(Image.fromarray(picture), (side, side), nearest))


def write_montage(path: Path, rows: Sequence[Sequence[NDArray]]) -> None:
    """Writes rows of pictures, `(height, width, 3)` uint8 each, as one PNG with white gaps."""
    from PIL import Image

    def padded(picture: NDArray, below: int, right: int) -> NDArray:
        return np.pad(picture, ((0, below), (0, right), (0, 0)), constant_values=255)

    strips = [np.concatenate([padded(it, _GAP, _GAP) for it in row], axis=1) for row in rows]
    width = max(strip.shape[1] for strip in strips)
    whole = np.concatenate([padded(strip, 0, width - strip.shape[1]) for strip in strips])
    with whole_file(path) as file:
        Image.fromarray(whole[:-_GAP, :-_GAP]).save(file, format="PNG")
