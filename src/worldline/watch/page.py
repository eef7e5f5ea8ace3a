"""A page to share: recorded episodes in one HTML file that plays without a server."""

from __future__ import annotations

from pathlib import Path

from worldline.errors import RunError
from worldline.files import whole_file
from worldline.learn.policy import Policy
from worldline.rendering.scene import NDArray
from worldline.watch.poses import Poser
from worldline.watch.run import WatchConfig, open_server, point_camera
from worldline.watch.session import Session
from worldline.watch.source import Source
from worldline.watch.stage import Stage, spacing_of

#: Frames a second, at most.
_FRAMES = 30.0

#: Poses are rounded to multiples of 1 / 4096, a quarter of a millimetre: what is round is small.
_STEPS = 4096.0


def save_page(
    file: Path,
    source: Source,
    policy: Policy | None,
    *,
    num_worlds: int = 4,
    seconds: float = 20.0,
    seed: int = 1,
) -> int:
    """Records worlds, and writes a page that replays them: to orbit, pause and scrub.

    Args:
        file: the HTML file, which is replaced.
        source: what to record.
        policy: how the worlds act; None: they rest.
        num_worlds: how many, side by side.
        seconds: of simulated time.
        seed: decides the starts.

    Returns:
        The size of the file in bytes.

    Raises:
        MissingExtraError: viser is not installed.
        RunError: the file cannot be written.
    """
    with open_server(WatchConfig(port=0)) as (server, _):
        session = Session(source, num_worlds, seed)
        if policy is not None:
            session.use(policy)
        model, timestep = source.env.model.mj, source.env.control_timestep
        stage = Stage(server, model, num_worlds, spacing_of(model))
        point_camera(server, model, stage)
        stride = max(1, round(1 / (_FRAMES * timestep)))
        poser, recording = Poser(model), server.get_scene_serializer()
        for _ in range(max(1, round(seconds / (stride * timestep)))):
            _show(stage, poser, session)
            recording.insert_sleep(stride * timestep)
            for _ in range(stride):
                session.step()
        html = recording.as_html().encode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as opened:
            opened.write(html)
    except OSError as error:
        raise RunError(f"cannot write {str(file)!r}: {error.strerror}; make room") from error
    return len(html)


def _show(stage: Stage, poser: Poser, session: Session) -> None:
    """Puts a frame into the scene, which the recording sees."""
    seen = session.seen
    poses = poser.poses(seen.qpos, seen.shown)
    for values in (poses.position, poses.wxyz):
        _round(values)
    text = f"world 0: return {seen.episode_return[0]:.0f}"
    stage.show(poses, 0, follow=True, contacts=False, centre=False, text=text)


def _round(values: NDArray) -> None:
    values *= _STEPS
    values.round(out=values)
    values /= _STEPS
