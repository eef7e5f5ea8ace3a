"""Panel: the buttons, choices and plots beside the scene."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from worldline.watch.curves import COLOURS, add_plot
from worldline.watch.session import Acting
from worldline.watch.sliders import CommandsTab, PhysicsTab
from worldline.watch.training import TrainingTab

if TYPE_CHECKING:
    from worldline.watch.watcher import Watcher

#: The keys of what is done most often.
_KEYS = {"Pause or continue": "P", "One step": "N", "Reset": "R", "New seed": "E"}


class Panel:
    """What a person sees and presses; it calls the watcher, which does it between two steps.

    Args:
        server: the viser server.
        watcher: what it controls.
    """

    def __init__(self, server: Any, watcher: Watcher) -> None:
        self._gui, self._watcher = server.gui, watcher
        self.status = server.gui.add_markdown("")
        self.banner = server.gui.add_markdown("", visible=False)
        tabs = server.gui.add_tab_group()
        with tabs.add_tab("Play"):
            self._add_time()
            self._add_policy()
            self._add_view()
            self._add_saving()
        with tabs.add_tab("Physics"):
            self.physics = PhysicsTab(server.gui, watcher)
        with tabs.add_tab("Commands"):
            CommandsTab(server.gui, watcher)
        with tabs.add_tab("Plots"):
            self.plots = Plots(server.gui, watcher)
        self.training: TrainingTab | None = None
        if watcher.runs:
            with tabs.add_tab("Training"):
                self.training = TrainingTab(server.gui, watcher.runs, watcher.post)
        for label, key in _KEYS.items():
            command = server.gui.add_command(label, hotkey=key)
            command.on_trigger(lambda _, label=label: watcher.post(self._doings[label]))

    def _add_time(self) -> None:
        gui, watcher = self._gui, self._watcher
        self._doings = {
            "Pause or continue": watcher.toggle,
            "One step": watcher.step_once,
            "Reset": watcher.reset,
            "New seed": watcher.new_seed,
        }
        self.pause = gui.add_button("Pause", hint="key P")
        self.pause.on_click(lambda _: watcher.post(watcher.toggle))
        group = gui.add_button_group("Time", ("One step", "Reset", "New seed"))
        group.on_click(lambda event: watcher.post(self._doings[event.target.value]))
        speed = gui.add_slider(
            "Speed", min=0.05, max=2.0, step=0.05, initial_value=1.0, hint="1 is real time"
        )
        speed.on_update(lambda _: setattr(watcher, "speed", float(speed.value)))
        limit = gui.add_checkbox("Time limit", True, hint="end episodes at the time limit")
        limit.on_update(lambda _: watcher.set_limit(limit.value))

    def _add_policy(self) -> None:
        gui, watcher = self._gui, self._watcher
        self.checkpoint: Any = None
        if watcher.follower is not None:
            if len(watcher.playable) > 1:
                run = gui.add_dropdown("Run", tuple(watcher.playable))
                run.on_update(lambda _: watcher.post(lambda: watcher.play(run.value)))
            self.checkpoint = gui.add_dropdown("Checkpoint", tuple(watcher.follower.choices()))
            self.checkpoint.on_update(
                lambda event: watcher.post(self._choose_policy) if event.client else None
            )
        ways = [w for w in get_args(Acting) if watcher.follower or not w.startswith("policy")]
        first = "policy" if watcher.follower else watcher.session.acting
        acting = gui.add_dropdown("Actions", tuple(ways), initial_value=first)
        acting.on_update(lambda _: watcher.post(lambda: watcher.act(acting.value)))

    def _choose_policy(self) -> None:
        assert self._watcher.follower is not None
        self._watcher.follower.choice = self.checkpoint.value

    def _add_view(self) -> None:
        gui, watcher = self._gui, self._watcher
        last = watcher.session.num_worlds - 1
        with gui.add_folder("View"):
            self.chosen = gui.add_slider(
                "World", min=0, max=max(last, 1), step=1, initial_value=0, visible=last > 0
            )
            self.chosen.on_update(
                lambda event: watcher.choose(int(self.chosen.value)) if event.client else None
            )
            boxes = {
                "follow": ("Follow the selected world", True),
                "contacts": ("Contact points", False),
                "centre": ("Centre of mass", False),
            }
            for name, (label, initial) in boxes.items():
                setattr(watcher, name, initial)
                box = gui.add_checkbox(label, initial)
                box.on_update(lambda _, n=name, box=box: setattr(watcher, n, bool(box.value)))
            spacing = gui.add_slider(
                "Spacing (m)",
                min=0.0,
                max=round(3 * watcher.spacing, 2),
                step=0.05,
                initial_value=round(watcher.spacing, 2),
                visible=last > 0,
                hint="0 puts all worlds at the same place",
            )
            spacing.on_update(lambda _: watcher.post(lambda: watcher.place(spacing.value)))
        # A round number about a third of the weight: 6 of them are about twice the weight.
        unit = float(f"{watcher.weight / 3:.1g}")
        with gui.add_folder("Hand"):
            gui.add_markdown("Click a body to push it; drag it to pull.")
            push = gui.add_slider(
                "Push (N)",
                min=0.0,
                max=20 * unit,
                step=unit / 20,
                initial_value=6 * unit,
                hint="a click pushes with this force for a tenth of a second",
            )
            watcher.push_newtons = float(push.value)
            push.on_update(lambda _: setattr(watcher, "push_newtons", float(push.value)))

    def _add_saving(self) -> None:
        gui, watcher = self._gui, self._watcher
        with gui.add_folder("Save", expand_by_default=False):
            state = gui.add_button("Exact state", hint="worldline.load_state loads it in Python")
            state.on_click(lambda _: watcher.post(watcher.save_state))
            clip = gui.add_button("Last 10 s as MP4")
            clip.on_click(lambda _: watcher.post(lambda: watcher.save_clip(".mp4")))
            gif = gui.add_button("Last 10 s as GIF")
            gif.on_click(lambda _: watcher.post(lambda: watcher.save_clip(".gif")))

    def show_choices(self, choices: list[str]) -> None:
        """Offers the checkpoints that there are now."""
        if self.checkpoint is not None and tuple(self.checkpoint.options) != tuple(choices):
            kept = self.checkpoint.value
            self.checkpoint.options = tuple(choices)
            if kept in choices and self.checkpoint.value != kept:
                self.checkpoint.value = kept

    def warn(self, text: str) -> None:
        """Shows a banner; empty: none."""
        shown = f"> **{text}**" if text else ""
        if self.banner.content != shown:
            self.banner.content = shown
            self.banner.visible = bool(text)

    def tell(self, text: str) -> None:
        """Shows the lines above the tabs."""
        if self.status.content != text:
            self.status.content = text


class Plots:
    """Live curves of the chosen world."""

    def __init__(self, gui: Any, watcher: Watcher) -> None:
        self._watcher = watcher
        self._live = gui.add_checkbox("Live", True)
        self._handles: dict[str, Any] = {}
        env = watcher.session.env
        names = {
            "reward": ["reward"],
            "return": ["return"],
            "metrics": list(env.task_specs.metrics),
            "action": [f"action {i}" for i in range(len(env.action_low))],
        }
        for name, curves in names.items():
            if curves:
                shown = curves[: len(COLOURS)]
                self._handles[name] = add_plot(gui, name, shown, over="s", height=130)

    def refresh(self) -> None:
        """Draws the last seconds."""
        if self._live.value:
            curves = self._watcher.traces.curves(self._watcher.chosen)
            for name, data in curves.items():
                self._handles[name].data = data[: 1 + len(COLOURS)]
