"""The text of the file that `worldline init` writes for an arm."""

from __future__ import annotations

from string import Template

#: A task of an arm that reaches.
REACHING = Template('''\
"""$name: an arm that reaches for targets, written by `worldline init`.

    python $file

checks the task, trains a policy, and writes a run folder with a learning curve and a video.
`worldline train $file` trains it with all options of the command line. The word YOURS marks the
places to change.
"""

import dataclasses
import functools
$path
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import worldline
${robots}from worldline.learn.ppo import PPOConfig
from worldline.train import TrainConfig, train
from worldline.tuning import tune_process

MJCF = $mjcf

#: YOURS: the body that reaches, and the point of it that should be at the target, in its frame, m.
HAND, TIP = $hand, $tip
#: YOURS: the joints that carry it there.
JOINTS = $chain
$actuators_table

@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class $task(worldline.Task):
    """Bring the hand to a point that is drawn for each episode, and hold it there.

    It has $joints and
    $actuators.
    Observation `($nobs,)`: positions and velocities of the joints; the hand, and the target from
    there, m.
    Action `($nact,)`: from -1 to 1, over the range of each actuator.
    """

    defaults = {
        "ppo": {"num_worlds": 128, "unroll_length": 32, "minibatches": 8, "initial_log_std": -1.0},
        "train": {"steps": $steps},
    }
    fields = ("xpos", "xmat")  # of MuJoCo's MjData, for `tip`

    control_timestep: float = $control_timestep
    """Seconds between two actions; a multiple of the model's time step of $timestep s."""
    episode_length: int = 150
    """Control steps after which an episode is truncated; 0 for no limit."""
    near: float = $near
    """Distance at which a target counts as reached, m."""
    effort_cost: float = 0.05
    """Cost of the mean of the squared actions."""

    def mjcf(self):
        """The model."""
        $source

    @functools.cached_property
    def targets(self):
        """YOURS: the target points, m. Now: where the hand is for random joint angles."""
        mj, random = self.model.mj, np.random.default_rng(0)
        data, body = mujoco.MjData(mj), self.model.id("body", HAND)
        ids = [self.model.id("joint", joint) for joint in JOINTS]
        limited = mj.jnt_limited[ids].astype(bool)[:, None]
        low, high = np.where(limited, mj.jnt_range[ids], [-1.5, 1.5]).T
        points = []
        for _ in range(2000):
            data.qpos[:] = self.rest_qpos
            data.qpos[mj.jnt_qposadr[ids]] = random.uniform(low, high)
            mujoco.mj_kinematics(mj, data)
            points.append(data.xpos[body] + data.xmat[body].reshape(3, 3) @ TIP)
        points = np.array(points)
        return points[points[:, 2] > $lowest]  # over the floor

    @property
    def rest_qpos(self):
        """YOURS: the pose in which an episode begins."""
        return np.asarray($pose)

    def start(self, key):
        """YOURS: where an episode begins. Now: near one pose, at rest, with a target."""
        joints_key, target_key = jax.random.split(key)
        joints = self.model.mj.jnt_qposadr[self.model.mj.jnt_type >= 2]  # hinges and slides
        noise = 0.01 * jax.random.normal(joints_key, joints.shape)
        targets = jnp.asarray(self.targets, jnp.float32)
        return worldline.Start(
            qpos=jnp.asarray(self.rest_qpos, jnp.float32).at[joints].add(noise),
            qvel=jnp.zeros(self.model.nv),
            memory=targets[jax.random.randint(target_key, (), 0, len(targets))],
        )

    @property
    def action_bounds(self):
        """From -1 to 1 for each actuator."""
        return -np.ones(self.model.nu, np.float32), np.ones(self.model.nu, np.float32)

    def control(self, action, physics, memory):
        """Maps an action to the actuators' ranges; -1 to 1 if an actuator has no range.

        An action of 0, where a policy begins, is the control $rest_words.
        """
        low, high = np.clip(self.model.ctrlrange.T, -1e6, 1e6)
        low, high = np.where(high - low < 1e6, low, -1.0), np.where(high - low < 1e6, high, 1.0)
        rest = $rest
        return rest + action * jnp.where(action < 0, rest - low, high - rest)

    def tip(self, physics):
        """The position of the hand's point, m."""
        body = self.model.id("body", HAND)
        frame = physics.fields["xmat"][body].reshape(3, 3)
        return physics.fields["xpos"][body] + frame @ jnp.array(TIP)

    def observe(self, physics, memory):
        """YOURS: what the policy observes."""
        tip = self.tip(physics)
        return jnp.concatenate([physics.qpos, 0.1 * physics.qvel, tip, memory - tip])

    def outcome(self, before, action, after, memory):
        """YOURS: the reward of a step, and whether the episode is over."""
        distance = jnp.linalg.norm(memory - self.tip(after))
        effort = jnp.mean(jnp.square(action))
        near = jnp.exp(-jnp.square(distance / self.near))
        return worldline.Outcome(
            reward=0.5 * (1 - jnp.tanh(distance / (4 * self.near))) + 0.5 * near
            - self.effort_cost * effort,
            terminated=jnp.asarray(False),
            memory=memory,
            metrics={"distance": distance, "reached": distance < self.near, "effort": effort},
        )


if __name__ == "__main__":
    tune_process()  # keeps compiled programs for the next time
    task = $task()
    env = worldline.Env(task)
    for warning in worldline.check_env(env).warnings:  # a problem is an error
        print("warning:", warning)
    run, algorithm = TrainConfig(**task.defaults["train"]), PPOConfig(**task.defaults["ppo"])
    result = train("$name", env, run, algorithm)
    print(result.folder, result.evaluation.episode_return.mean())
''')
