"""The commands: the options of each, from which tyro makes its help, and what it does.

A command imports what it needs when it runs, since that takes seconds: so a wrong option is
reported at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from worldline.cli import BEGAN
from worldline.cli.identifying import Identify as Identify
from worldline.cli.of_run import TRUST_CODE, OfRun, RunPath
from worldline.errors import ConfigError
from worldline.parallel.config import ClusterConfig
from worldline.settings import Count, Positive, Range, Seed, check_settings
from worldline.watch.run import WatchConfig

if TYPE_CHECKING:
    from worldline.env.env import Env
    from worldline.learn.policy import Policy
    from worldline.report import RunFolder


def train(settings: Any) -> None:
    """Trains a policy with the settings that `arguments.train_settings` read."""
    from worldline.cli.result import print_result
    from worldline.parallel.cluster import join
    from worldline.train import train as train_run
    from worldline.train.interrupt import graceful_stop

    mesh = join(settings.cluster)
    env = settings.environment()
    what = (settings.name, env, settings.run, settings.algorithm)
    print_result(settings.name, train_run(*what, BEGAN, graceful_stop(), mesh=mesh))


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped or killed.

    On the CPU, the result equals that of a run that was never stopped, bit for bit.
    """

    run: RunPath
    """The run folder."""
    steps: Annotated[int, Range(1, 10**15)] | None = None
    """Train to this total number of environment steps. By default to the number with which the run
    began."""
    quiet: bool = False
    """Show no progress."""
    trust_code: Annotated[bool, tyro.conf.arg(help=TRUST_CODE)] = False
    cluster: Annotated[ClusterConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=ClusterConfig
    )

    def execute(self) -> None:
        """Continues the run."""
        from worldline.cli.result import print_result
        from worldline.parallel.cluster import join
        from worldline.report import RunFolder
        from worldline.train import resume
        from worldline.train.interrupt import graceful_stop

        check_settings(self)
        if cores := RunFolder.open(self.run).versions.get("cores"):
            # XLA reads it when JAX begins: it divides its sums among so many threads.
            os.environ.setdefault("NPROC", cores)
        mesh = join(self.cluster)
        result = resume(
            self.run,
            self.steps,
            self.quiet,
            BEGAN,
            graceful_stop(),
            mesh=mesh,
            trust_code=self.trust_code,
        )
        print_result(str(RunFolder.open(self.run).config["task"]), result)


@dataclasses.dataclass(frozen=True)
class Eval(OfRun):
    """Evaluate a run's policy in new episodes."""

    episodes: Count = 20
    """The number of episodes. With --context, the number at each point of the grid."""
    seed: Seed = 1
    """The random seed of the episodes."""
    domain: str = ""
    """Draw the physics of each episode from this domain, as in `worldline train`."""
    context: tuple[str, ...] = ()
    """Evaluate over a grid of context features: gravity=-5:-15:11 (11 values) or friction=0.5,1.
    The result is a table, and for one or two features also a picture."""

    def execute(self) -> None:
        """Prints the returns with the most likely actions and with random ones."""
        import jax

        from worldline.learn.rollout import evaluator
        from worldline.train.config import find_domain

        folder, env, policy = self.open()
        if self.context:
            self._sweep(folder, env, policy)
            return
        domain = find_domain(env.task, self.domain)
        keys = jax.random.split(jax.random.key(self.seed), 2)
        metrics: dict[str, list[float]] = {}
        for name, key in zip(("deterministic", "stochastic"), keys, strict=True):
            deterministic = name == "deterministic"
            measure = evaluator(env, self.episodes, deterministic=deterministic, domain=domain)
            result = jax.device_get(measure(policy, key))
            for metric, mean in result.metrics.items():
                metrics.setdefault(metric, []).append(float(mean.mean()))
            print(
                f"{name:14} return {result.episode_return.mean():9.2f} "
                f"+- {result.episode_return.std():.2f}   "
                f"length {result.episode_length.mean():.0f}   {self.episodes} episodes"
            )
        if metrics:
            print("means of the task's metrics over steps, deterministic and stochastic:")
        for metric, means in metrics.items():
            print(f"  {metric:{max(map(len, metrics))}} " + "".join(f"{x:12.4g}" for x in means))

    def _sweep(self, folder: RunFolder, env: Env, policy: Policy) -> None:
        """Prints a table of the return over a grid of contexts; plots one or two axes."""
        import jax
        from rich.progress import Progress

        from worldline.report.figures import plot_contexts
        from worldline.train.config import find_domain
        from worldline.train.sweep import sweep
        from worldline.variation.options import read_draws, read_grid

        axes, domain = read_grid(self.context), find_domain(env.task, self.domain)
        with Progress(transient=True) as bar:
            work = bar.add_task("episodes", total=1.0)

            def show(share: float) -> None:
                bar.update(work, completed=share)

            key = jax.random.key(self.seed)
            returns = sweep(env, policy, axes, self.episodes, key, show, domain)
        print("  ".join(f"{name:>12}" for name in [*axes, "return", "+-"]))
        points = itertools.product(*axes.values())
        for point, each in zip(points, returns.reshape(-1, self.episodes), strict=True):
            print("  ".join(f"{value:12.4g}" for value in (*point, each.mean(), each.std())))
        if len(axes) <= 2:
            trained = read_draws(folder.config.get("context", ()))
            supports = {name: draws.support() for name, draws in trained.items()}
            ranges = {name: (float(low), float(high)) for name, (low, high) in supports.items()}
            picture = folder.path / f"context-{'-'.join(axes)}.png"
            plot_contexts(axes, returns, picture, str(folder.config["task"]), ranges)
            print(f"  picture  {picture}")


@dataclasses.dataclass(frozen=True)
class Render(OfRun):
    """Make a video and a strip of pictures of a run's policy. With the extra viewer, also make a
    page that plays the episode in a browser.

    Without --size and --fps, the video has a height of 720 pixels and 30 frames per second if
    drawing takes less than 20 s. Otherwise both are reduced, and a printed line says so.
    """

    seconds: Positive = 10.0
    """The maximum duration of the video."""
    size: str = ""
    """The height, for example 720p; or height x width in pixels, for example 480x640."""
    camera: str = ""
    """A camera of the model; by default the camera of the task."""
    fps: Positive | None = None
    """The maximum number of frames per second."""
    worlds: Count = 1
    """Show this number of episodes side by side, in a grid."""
    out: Path | None = None
    """The video to write, a file that ends in .mp4. By default the video and a strip of pictures
    are written to the run folder."""
    seed: Seed = 1
    """The random seed of the episode."""
    stochastic: bool = False
    """Draw the actions from the policy. By default it takes the most likely actions."""
    quiet: bool = False
    """Show no progress."""

    def execute(self) -> None:
        """Makes the files, and prints their names."""
        import jax

        from worldline.train.video import VideoOptions, make_video

        size = _frame_size(self.size)
        if self.out and self.out.suffix != ".mp4":
            raise ConfigError(f"out is {str(self.out)!r}; give a file that ends in .mp4")
        folder, env, policy = self.open()
        options = VideoOptions(size, self.camera, self.fps, self.worlds, self.out, self.quiet)
        key = jax.random.key(self.seed)
        print(make_video(folder, env, policy, key, self.seconds, not self.stochastic, options))
        made = [self.out] if self.out else [folder.video_file, folder.strip_file]
        made.append((self.out or folder.video_file).with_suffix(".html"))
        seen = [folder.inputs_file] if not self.out and self.worlds == 1 else []
        for file in (*made, *seen):
            if file.exists():
                print(f"  {file}")


def _frame_size(text: str) -> tuple[int, int] | None:
    """Height and width of a frame: 720p is 720 x 1280; 480x640 is both."""
    if not text:
        return None
    lines, both = re.fullmatch(r"(\d{1,4})p", text), re.fullmatch(r"(\d{1,4})x(\d{1,4})", text)
    if lines:
        height = int(lines[1])
        return height, round(height * 8 / 9) * 2
    if both:
        return int(both[1]), int(both[2])
    raise ConfigError(
        f"size is {text!r}; give a height, for example 720p, or height x width, for example 480x640"
    )


@dataclasses.dataclass(frozen=True)
class Watch:
    """Watch worlds live in the browser, with sliders for their physics."""

    what: tyro.conf.Positional[str]
    """A run folder, a task or an MJCF file. The newest policy of the run acts, also during
    training."""
    others: tyro.conf.Positional[tuple[str, ...]] = ()
    """More run folders; the page shows their curves too."""
    watch: Annotated[WatchConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=WatchConfig
    )
    trust_code: Annotated[bool, tyro.conf.arg(help=TRUST_CODE)] = False

    def execute(self) -> None:
        """Serves the page until Ctrl-C."""
        from worldline.watch.run import watch

        watch(self.what, self.watch, _say, others=self.others, trust_code=self.trust_code)


def _say(line: str) -> None:
    """Prints a line at once, also into a pipe."""
    print(line, flush=True)


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare runs: a table of their results and of the settings that differ, and a picture."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """The run folders."""
    out: Path = Path("compare.png")
    """The picture to write."""

    def execute(self) -> None:
        """Prints the table, and the name of the picture."""
        from worldline.report.compare import compare_runs

        if not self.runs:
            raise ConfigError("worldline compare needs run folders: worldline compare RUN RUN ...")
        for line in compare_runs(self.runs, self.out):
            print(line)
        print(f"  picture  {self.out}")


@dataclasses.dataclass(frozen=True)
class Export(OfRun):
    """Write a folder for a robot: the policy as ONNX, a description of each number of its
    observation and action, the model, and a program that runs it without JAX and Worldline.

    With `--html FILE`, write a page instead: recorded episodes in 3D, in one file that needs no
    server.
    """

    out: Path | None = None
    """The folder to write; by default `deploy` in the run folder. If it ends in .onnx, only the
    policy is written, to this file."""
    html: Path | None = None
    """The page to write instead of the folder."""
    worlds: Count = 4
    """The number of worlds on the page, side by side."""
    seconds: Positive = 20.0
    """Seconds of simulated time on the page."""
    seed: Seed = 1
    """The random seed of the page's episodes."""

    def execute(self) -> None:
        """Writes the folder or the file, and prints what is in it."""
        if self.html is not None:
            from worldline.cli.exporting import write_page

            if self.html.suffix != ".html":
                raise ConfigError(f"html is {str(self.html)!r}; give a file that ends in .html")
            _, env, policy = self.open()
            shown = self.worlds, self.seconds, self.seed
            print(write_page(self.html, str(self.run), env, policy, *shown))
            return
        from worldline.cli.exporting import export_run

        for line in export_run(*self.open(), self.out, self.checkpoint):
            print(line)


@dataclasses.dataclass(frozen=True)
class Record(OfRun):
    """Record episodes of a run's policy as a Minari dataset. Each episode can be replayed."""

    minari: str = ""
    """The name of the dataset: namespace/name-v0."""
    episodes: Count = 100
    """The number of episodes."""
    seed: Seed = 0
    """The seed of the first episode. The seed of each next episode is one larger."""
    stochastic: bool = False
    """Draw the actions from the policy. By default it takes the most likely actions."""
    domain: str = ""
    """Draw the physics of each episode from this domain, as in `worldline train`."""
    context: tuple[str, ...] = ()
    """Context features and their distributions, as in `worldline train`."""
    num_worlds: Count = 16
    """The number of episodes that are simulated at the same time."""

    def execute(self) -> None:
        """Writes the dataset, and prints where it is."""
        if not self.minari:
            raise ConfigError("the dataset needs a name; give --minari namespace/name-v0")
        from rich.progress import Progress

        from worldline.bridges.minari import record_dataset
        from worldline.train.config import find_domain
        from worldline.variation.options import read_draws

        folder, env, policy = self.open()
        algorithm = str(folder.config["algorithm"])
        with Progress(transient=True) as bar:
            work = bar.add_task("episodes", total=self.episodes)
            dataset = record_dataset(
                env,
                policy,
                self.minari,
                self.episodes,
                seed=self.seed,
                deterministic=not self.stochastic,
                domain=find_domain(env.task, self.domain),
                context=read_draws(self.context) or None,
                num_worlds=self.num_worlds,
                about={"algorithm_name": algorithm},
                show=lambda recorded: bar.update(work, completed=recorded),
            )
        place = dataset.storage.data_path.parent
        print(f"{place}: {dataset.total_episodes} episodes, {dataset.total_steps:,} steps")
        print(f"  minari.load_dataset({self.minari!r})")


@dataclasses.dataclass(frozen=True)
class Init:
    """Write a Python file with a task for your robot. You can train it at once, and change it."""

    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The robot's MJCF or URDF file; or a robot of the Menagerie, for example
    menagerie:unitree_go2, which is downloaded (extra robots)."""
    out: Path | None = None
    """The Python file to write. By default it is in the current folder and has the name of the
    model."""
    motors: bool = False
    """Add a motor to every hinge and slide, for a model without actuators. A robot with legs gets
    position servos without this option."""

    def execute(self) -> None:
        """Writes the file, and prints its name."""
        from worldline.cli.scaffold import write_task

        written = write_task(self.robot, self.out, motors=self.motors)
        file = written.file
        print(f"{file}: a task for {self.robot}")
        for note in written.notes:
            print(f"  {note}")
        print(f"  `python {file}` checks it and trains it; the places to change are marked YOURS")
        print(f"  `worldline train {file} --help` shows every setting")


@dataclasses.dataclass(frozen=True)
class List:
    """List the tasks."""

    pattern: tyro.conf.Positional[str] = ""
    """List only tasks with this text in their name or description; `*` matches any text."""
    sizes: bool = False
    """Also show the sizes of observation and action, the control rate, and the engines. This builds
    each task, which takes some seconds."""
    fields: str = ""
    """Show instead what can vary in this task: its domains, context features and model fields."""

    def execute(self) -> None:
        """Prints the list."""
        from worldline.tasks.names import tasks_like

        if self.fields:
            from worldline.cli.listing import fields_of

            lines = list(fields_of(self.fields))
        else:
            about = tasks_like(self.pattern)
            lines = [f"{name:32} {text}" for name, text in sorted(about.items())]
            if self.sizes:
                from worldline.cli.listing import sizes_of

                lines = list(sizes_of(sorted(about)))
        for line in lines:
            print(line)
