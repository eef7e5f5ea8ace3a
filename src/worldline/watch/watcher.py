"""Watcher: steps worlds in real time and shows them, between what people do to them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worldline.errors import WorldlineError
from worldline.rendering.web.poses import Poser, Poses
from worldline.rendering.web.stage import Stage, spacing_of
from worldline.report import RunFolder, render_episode
from worldline.watch.panel import Panel
from worldline.watch.policies import PolicyFollower
from worldline.watch.saved import save_state
from worldline.watch.session import Acting, Session
from worldline.watch.source import Source, alike
from worldline.watch.traces import Traces
from worldline.watch.training import named

#: Frames a second that browsers get.
_FRAMES = 30.0

#: Seconds between two looks at the policy's file, two updates of plots, and of the text.
_POLL_S, _PLOT_S, _TEXT_S = 1.0, 0.5, 0.25

#: Seconds that a push lasts, and that a banner stays.
_PUSH_S, _BANNER_S = 0.1, 6.0

#: A pull's force grows by this many times the robot's weight for each metre.
_PULL = 8.0


class Watcher:
    """The worlds, their scene and their panel, in one loop.

    Callbacks of the browser run in threads of their own; they `post` what is to be done, and the
    loop does it between two steps.

    Args:
        server: the viser server.
        name: what is watched, as on the command line.
        source: the same, opened.
        num_worlds: how many worlds.
        seed: decides their starts.
        out: the folder in which states and clips are saved.
        others: runs whose curves are shown too.
    """

    def __init__(
        self,
        server: Any,
        name: str,
        source: Source,
        num_worlds: int,
        seed: int,
        out: Path,
        others: Sequence[RunFolder] = (),
    ) -> None:
        self._server, self._name, self._title, self._out = server, name, source.title, out
        self.session = Session(source, num_worlds, seed)
        self.follower = None if source.folder is None else PolicyFollower(source.folder.path)
        own = [] if source.folder is None else [source.folder]
        #: The runs with curves, by their names; the first is the one that is watched, if it is one.
        self.runs = named([*own, *others])
        #: Those whose policies can act here.
        self.playable = {n: run for n, run in self.runs.items() if own and alike(own[0], run)}
        self.model = source.env.model.mj
        self.timestep = source.env.control_timestep
        self.traces = Traces(self.timestep)
        self.chosen, self.speed, self.playing = 0, 1.0, True
        self.follow = self.contacts = self.centre = False
        self.push_newtons = 0.0
        self.spacing = spacing_of(self.model)
        gravity = float(np.linalg.norm(self.model.opt.gravity)) or 9.81
        #: The weight of what can move, N.
        self.weight = max(0.1, gravity * float(self.model.body_subtreemass[0]))
        self._poser = Poser(self.model)
        self._todo: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._pushes: list[tuple[int, int, int]] = []
        self._banner, self._banner_until, self._step_s = "", 0.0, 0.0
        self._poses: Poses | None = None
        self.stage = Stage(server, self.model, num_worlds, self.spacing)
        self.stage.on_body(self._clicked, self._dragged)
        self.panel = Panel(server, self)
        self.panel.tell(f"**{self._title}**\n\ncompiling, which takes some seconds")
        self.poll()
        self.show()

    def post(self, what: Callable[[], object]) -> None:
        """Has the loop do something between two steps."""
        self._todo.put(what)

    def run(self, stop: threading.Event) -> None:
        """Steps and shows the worlds until `stop` is set; rests while nobody looks."""
        now = time.monotonic()
        every: dict[Callable[[], None], float] = {
            self.poll: _POLL_S,
            self._follow_training: _POLL_S,
            self._plot: _PLOT_S,
            self._tell: _TEXT_S,
            self.show: 1 / _FRAMES,
        }
        due = dict.fromkeys(every, now)
        behind, before = 0.0, now
        while not stop.is_set():
            self._do_all()
            now = time.monotonic()
            looked_at = bool(self._server.get_clients())
            behind += (now - before) * self.speed if self.playing and looked_at else 0.0
            before = now
            if behind >= self.timestep:
                self.step()
                behind = min(behind - self.timestep, 0.1)  # slower than real time where it must be
            for what, at in due.items():
                if now >= at and (looked_at or what == self.poll):
                    what()
                    due[what] = now + every[what]
            if behind < self.timestep:
                stop.wait(0.002 if looked_at else 0.05)

    def step(self) -> None:
        """Takes one control step, with the pushes and pulls of now."""
        began = time.monotonic()
        for until, world, body in self._pushes:
            if self.session.taken >= until:
                self.session.forces[world, body] = 0
        self._pushes = [push for push in self._pushes if self.session.taken < push[0]]
        seen = self.session.step()
        self.traces.add(self.session.taken, seen)
        if seen.diverged.any():
            worlds = ", ".join(map(str, np.flatnonzero(seen.diverged)))
            self.say(f"world {worlds} diverged and was reset")
        took = time.monotonic() - began
        self._step_s += 0.05 * (min(took, 1.0) - self._step_s)  # a mean, which compiling is not of

    def show(self) -> None:
        """Sends browsers where everything is."""
        seen = self.session.seen
        self._poses = self._poser.poses(seen.qpos, seen.shown, contacts=self.contacts)
        label = f"world {self.chosen}: return {seen.episode_return[self.chosen]:.1f}"
        self.stage.show(
            self._poses,
            self.chosen,
            follow=self.follow,
            contacts=self.contacts,
            centre=self.centre,
            text=label,
        )

    def poll(self) -> None:
        """Takes a new policy, if there is one."""
        if self.follower is None:
            return
        policy = self.follower.poll()
        if policy is not None:
            self.session.use(policy)
        self.panel.show_choices(self.follower.choices())

    def _follow_training(self) -> None:
        if self.panel.training is not None:
            self.panel.training.refresh()

    def _plot(self) -> None:
        if self.playing:
            self.panel.plots.refresh()

    def _tell(self) -> None:
        seconds = self.session.seen.steps[self.chosen] * self.timestep
        policy = "" if self.follower is None else f"\n\npolicy: {self.follower.note}"
        late = self._step_s * self.speed > self.timestep
        what = ", paused" if not self.playing else ", slower than the chosen speed" if late else ""
        count = self.session.num_worlds
        worlds = f"{count} world{'s' * (count > 1)}"
        self.panel.tell(f"**{self._title}**{policy}\n\n{worlds}, {seconds:.2f} s{what}")
        if time.monotonic() > self._banner_until:
            self._banner = ""
        self.panel.warn(self._banner)

    def say(self, text: str) -> None:
        """Shows a banner for some seconds."""
        self._banner, self._banner_until = text, time.monotonic() + _BANNER_S
        self.panel.warn(text)

    def _do_all(self) -> None:
        while True:
            try:
                what = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                what()
            except WorldlineError as error:
                self.say(str(error))

    def toggle(self) -> None:
        """Pauses, or goes on."""
        self.playing = not self.playing
        self.panel.pause.label = "Pause" if self.playing else "Continue"

    def step_once(self) -> None:
        """Pauses, and takes one control step."""
        if self.playing:
            self.toggle()
        self.step()
        self.panel.plots.refresh()

    def reset(self, seed: int | None = None) -> None:
        """Begins again, by default with the same seed."""
        self._pushes.clear()
        self.session.reset(self.session.seed if seed is None else seed)
        self.traces.clear()

    def new_seed(self) -> None:
        """Begins again with the next seed."""
        self.reset(self.session.seed + 1)

    def set_limit(self, on: bool) -> None:
        """Lets long episodes end, or not."""
        self.session.time_limit = on

    def play(self, run: str) -> None:
        """Has the worlds act as the newest policy of another run does, once it has one."""
        assert self.follower is not None
        self.follower.follow(self.playable[run].path)
        self.poll()

    def act(self, how: Acting) -> None:
        """Has the worlds act in another way."""
        self.session.acting = how

    def choose(self, world: int) -> None:
        """Chooses the world whose numbers are shown."""
        self.chosen = min(world, self.session.num_worlds - 1)
        self.panel.physics.refresh()

    def place(self, spacing: float) -> None:
        """Puts the worlds at another distance from each other."""
        self.stage.place(spacing)

    def push(self, world: int, body: int, direction: Any) -> None:
        """Pushes a body for a moment, along a direction of the world."""
        along = np.asarray(direction, np.float64)
        along = along / max(float(np.linalg.norm(along)), 1e-9)
        self.session.forces[world, body, :3] = self.push_newtons * along
        steps = max(1, round(_PUSH_S / self.timestep))
        self._pushes.append((self.session.taken + steps, world, body))

    def pull(self, world: int, body: int, way: Any) -> None:
        """Pulls a body along a way, m, as a spring would; None: lets it go."""
        force = np.zeros(3) if way is None else _PULL * self.weight * np.asarray(way)
        most = 5 * self.weight
        size = float(np.linalg.norm(force))
        self.session.forces[world, body, :3] = force * min(1.0, most / max(size, 1e-9))

    def _clicked(self, body: int, event: Any) -> None:
        if self._poses is None:
            return
        world, along = self.stage.world_of(event, body, self._poses), np.array(event.ray_direction)
        along[2] = 0.25 * along[2]  # rather over than into the ground
        self.post(lambda: self._push_and_choose(world, body, along))

    def _push_and_choose(self, world: int, body: int, along: Any) -> None:
        self.push(world, body, along)
        self.choose(world)
        if self.panel.chosen.value != world:
            self.panel.chosen.value = world

    def _dragged(self, body: int, event: Any) -> None:
        if event.instance_index is None:
            return
        world, away = int(event.instance_index), self.stage.frame.position
        start, end = (np.array(p) - away for p in (event.start_position, event.end_position))
        if event.phase == "end":
            self.post(lambda: self.pull(world, body, None))
            self.post(lambda: self.stage.show_pull(None))
        else:
            way = end - start
            self.post(lambda: self.pull(world, body, way))
            self.post(lambda: self.stage.show_pull(start, end))

    def save_state(self) -> None:
        """Writes the state of all worlds to a file that `worldline.load_state` reads."""
        file = self._new_file(".npz")
        save_state(file, self._name, self.session.state)
        self.say(f"saved {file}")

    def save_clip(self, suffix: str) -> None:
        """Renders the last seconds of the chosen world in a thread of its own."""
        history = list(self.session.history)
        if len(history) < 2:
            self.say("nothing to save yet: let the worlds run")
            return
        world, file = self.chosen, self._new_file(suffix)
        qpos = np.stack([q[world] for q, _ in history])
        mocap = [n for n in history[0][1] if n.startswith("mocap")]
        inputs = {n: np.stack([shown[n][world] for _, shown in history]) for n in mocap}
        constants = {n: x[world] for n, x in history[-1][1].items() if n not in mocap}
        self.say(f"rendering {file}")

        def work() -> None:
            try:
                self._render(file, qpos, inputs, constants)
                text = f"saved {file}"
            except WorldlineError as error:
                text = str(error)
            self.post(lambda: self.say(text))

        threading.Thread(target=work, name="clip", daemon=True).start()

    def _render(self, file: Path, qpos: Any, inputs: Any, constants: Any) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        mp4 = file.with_suffix(".mp4")
        render_episode(
            self.session.env.model,
            qpos,
            mp4,
            timestep=self.timestep,
            camera=self.session.env.task.camera,
            variation=constants,
            inputs=inputs,
        )
        if file.suffix == ".gif":
            import imageio.v3 as imageio

            frames = imageio.imread(mp4)[::2]
            imageio.imwrite(file, frames, duration=1000 / 15, loop=0)
            mp4.unlink()

    def _new_file(self, suffix: str) -> Path:
        return self._out / f"watch-{time.strftime('%Y%m%d-%H%M%S')}{suffix}"
