"""Camera: what one camera of the model adds to an observation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np

from worldline.errors import ConfigError, did_you_mean
from worldline.settings import Range, check_settings

#: The beginnings of the names of colour images and of depth images in an observation.
COLOUR, DEPTH = "pixels/", "depth/"

_LARGEST = 4096


@dataclasses.dataclass(frozen=True)
class Camera:
    """A camera of the model as an observer.

    Under the name `front`, it adds to the observation of one world

    - `pixels/front`, `(height, width, 3 stack)` uint8: red, green and blue of each frame;
    - `depth/front`, `(height, width, stack)` uint16: millimetres along the camera's axis, 0 where
      nothing is within 65.535 m, as depth cameras give it (ROS REP 118, "OpenNI raw").

    Raises:
        ConfigError: a size or `stack` that cannot be, or neither colour nor depth.
    """

    name: str
    """In the model."""
    height: Annotated[int, Range(1, _LARGEST)] = 64
    """Pixels."""
    width: Annotated[int, Range(1, _LARGEST)] = 64
    """Pixels."""
    rgb: bool = True
    """Whether to see colours."""
    depth: bool = False
    """Whether to see distances."""
    stack: Annotated[int, Range(1, 1000)] = 1
    """The latest frames, one a control step, oldest first; at the start of an episode the first
    frame in place of all before it."""

    def __post_init__(self) -> None:
        try:
            check_settings(self)
        except ConfigError as error:
            raise ConfigError(f"camera {self.name!r}: {error}") from error
        if not (self.rgb or self.depth):
            raise ConfigError(
                f"camera {self.name!r} has neither colour nor depth; give rgb=True or depth=True"
            )

    def images(self, view: str) -> dict[str, tuple[int, type[np.generic]]]:
        """Channels of a frame and dtype of each image, by the image's name in the observation."""
        images: dict[str, tuple[int, type[np.generic]]] = {}
        if self.rgb:
            images[COLOUR + view] = (3, np.uint8)
        if self.depth:
            images[DEPTH + view] = (1, np.uint16)
        return images


def read_cameras(texts: Iterable[str], *, stack: int = 1, depth: bool = False) -> dict[str, Camera]:
    """Cameras from texts such as `fixed` and `front=84x96`, height before width.

    Raises:
        ConfigError: a text has another form.
    """
    cameras = {}
    for text in texts:
        name, _, size = text.partition("=")
        height, _, width = (size or "64x64").partition("x")
        if not (name and height.isdecimal() and width.isdecimal()):
            raise ConfigError(f"{text!r} is not a camera; give NAME, or NAME=HEIGHTxWIDTH")
        cameras[name] = Camera(name, int(height), int(width), depth=depth, stack=stack)
    return cameras


def is_image(name: str) -> bool:
    """Whether the part of an observation with this name is an image."""
    return name.startswith((COLOUR, DEPTH))


def image_names(names: Iterable[str]) -> list[str]:
    """The names of images among the names of parts of an observation."""
    return [name for name in names if is_image(name)]


def image_shapes(observation_space: Any, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The shape of each image: height, width, channels.

    Args:
        observation_space: a Gymnasium space.
        names: the names of the images.

    Raises:
        ConfigError: there is no such image in the space.
    """
    parts = dict(getattr(observation_space, "spaces", {}))
    for name in names:
        if name not in parts:
            hint = did_you_mean(name, filter(is_image, parts))
            raise ConfigError(
                f"the observation has no {name!r}{hint or '; give the environment cameras'}"
            )
    return {name: parts[name].shape for name in names}
