"""Sliders: the tab in which a person turns the physics, the commands and the actions of worlds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from worldline.watch.knobs import Knob
from worldline.watch.session import Command, commands_of

if TYPE_CHECKING:
    from worldline.watch.watcher import Watcher

#: More actions than this are not worth a slider each.
_MOST_ACTIONS = 24

_ALL, _ONE = "all worlds", "the selected world"


class PhysicsTab:
    """A slider for each knob, and buttons that turn several at once.

    Args:
        gui: viser's `server.gui`, inside of the tab.
        watcher: what the sliders move.
    """

    def __init__(self, gui: Any, watcher: Watcher) -> None:
        self._gui, self._watcher = gui, watcher
        self._sliders: dict[str, Any] = {}
        self._scope = gui.add_dropdown("Sliders change", (_ALL, _ONE))
        self._one_of = gui.add_dropdown("Spread", tuple(watcher.session.knobs.knobs) or ("",))
        buttons = gui.add_button_group("Physics", ("nominal", "spread", "draw"))
        buttons.on_click(lambda event: watcher.post(lambda: self._several(event.target.value)))
        for title, group in (("Context", "context"), ("Domain ranges", "domain")):
            knobs = [k for k in watcher.session.knobs.knobs.values() if k.group == group]
            if knobs:
                few = [k for k in knobs if not k.label.startswith("mass_")]
                self._folder(title, few, open=True)
                self._folder("Masses", [k for k in knobs if k not in few], open=False)
        self._fields_folder = gui.add_folder("Any model field", expand_by_default=False)
        self._add_form()

    def refresh(self) -> None:
        """Shows the values of the chosen world."""
        values, world = self._watcher.session.knobs.values, self._watcher.chosen
        for name, slider in self._sliders.items():
            value = _within(slider, _short(float(values[name][world])))
            if slider.value != value:
                slider.value = value

    def _several(self, what: str) -> None:
        session = self._watcher.session
        worlds = self._worlds()
        if what == "nominal":
            session.knobs.reset(worlds)
        elif what == "draw":
            session.knobs.draw(session.taken)
        else:
            session.knobs.spread(self._one_of.value)
        session.vary()
        self.refresh()

    def _worlds(self) -> list[int] | None:
        return None if self._scope.value == _ALL else [self._watcher.chosen]

    def _folder(self, title: str, knobs: list[Knob], *, open: bool) -> None:
        if knobs:
            with self._gui.add_folder(title, expand_by_default=open):
                for knob in knobs:
                    self._add_slider(knob)

    def _add_slider(self, knob: Knob) -> None:
        unit = f" ({knob.unit})" if knob.unit else ""
        seen = "; the policy may observe it" if knob.observed else ""
        low, high = _short(knob.low), _short(knob.high)
        slider = self._gui.add_slider(
            f"{knob.label}{unit}",
            min=low,
            max=high,
            step=_step(low, high),
            initial_value=min(max(_short(knob.nominal), low), high),
            hint=f"{knob.name}: nominal {knob.nominal:g}{seen}",
        )
        self._sliders[knob.name] = slider

        def turn(event: Any) -> None:
            if event.client is not None:  # else this program moved it
                value = float(slider.value)
                post = self._watcher.post
                post(lambda: self._watcher.session.turn(knob.name, value, self._worlds()))

        slider.on_update(turn)

    def _add_form(self) -> None:
        """The form that adds a slider for an element of any field."""
        with self._fields_folder:
            field = self._gui.add_text("Field", "dof_armature", hint="for example opt.timestep")
            row = self._gui.add_number("Row", 0, min=0, step=1)
            element = self._gui.add_number("Element", 0, min=0, step=1)
            add = self._gui.add_button("Add a slider")

        def added() -> None:
            knob = self._watcher.session.add_field(
                field.value.strip(), int(row.value), int(element.value)
            )
            if knob.name not in self._sliders:
                with self._fields_folder:
                    self._add_slider(knob)

        add.on_click(lambda _: self._watcher.post(added))


class CommandsTab:
    """Sliders for what the task asks of the robot, and for actions by hand."""

    def __init__(self, gui: Any, watcher: Watcher) -> None:
        self._gui, self._session = gui, watcher.session
        commands = commands_of(watcher.session)
        if not commands:
            gui.add_markdown("This task has no commands.")
        for command in commands:
            self._add_command(command, watcher)
        if 0 < len(self._session.sliders) <= _MOST_ACTIONS:
            self._add_actions(watcher)

    def _add_command(self, command: Command, watcher: Watcher) -> None:
        with self._gui.add_folder(command.label):
            hold = self._gui.add_checkbox(
                "hold", False, hint="use these values instead of the task's command, in all worlds"
            )
            sliders = [
                self._gui.add_slider(
                    f"{command.label}[{i}]",
                    min=float(low),
                    max=float(high),
                    step=_step(float(low), float(high)),
                    initial_value=min(max(0.0, float(low)), float(high)),
                )
                for i, (low, high) in enumerate(zip(command.low, command.high, strict=True))
            ]

        def put() -> None:
            values = [s.value if hold.value else math.nan for s in sliders]
            lead = (self._session.num_worlds, 1)
            self._session.held[command.path] = np.tile(np.asarray(values, np.float32), lead)

        put()
        hold.on_update(lambda _: watcher.post(put))
        for slider in sliders:
            slider.on_update(lambda _: watcher.post(put))

    def _add_actions(self, watcher: Watcher) -> None:
        env, session = watcher.session.env, self._session
        names = env.model.control_names
        if len(names) != len(session.sliders):
            names = [f"action {i}" for i in range(len(session.sliders))]
        with self._gui.add_folder("Actions by hand", expand_by_default=False):
            self._gui.add_markdown('To use these sliders, set "Actions" to `sliders`.')
            for i, name in enumerate(names):
                low, high = float(env.action_low[i]), float(env.action_high[i])
                low, high = max(low, -10.0), min(high, 10.0)
                slider = self._gui.add_slider(
                    name or f"action {i}",
                    min=low,
                    max=high,
                    step=_step(low, high),
                    initial_value=min(max(float(session.rest[i]), low), high),
                )

                def put(_: Any, i: int = i, slider: Any = slider) -> None:
                    session.sliders[i] = slider.value

                slider.on_update(put)


def _short(value: float) -> float:
    """A number of three digits, which a panel has room for."""
    return float(f"{value:.3g}")


def _within(slider: Any, value: float) -> float:
    return min(max(value, slider.min), slider.max)


def _step(low: float, high: float) -> float:
    """A power of ten that divides a range into hundreds of steps."""
    span = high - low
    return float(10.0 ** math.floor(math.log10(span / 200))) if span > 0 else 0.1
