"""A robot of your own: MJCF, task, domain, PPO, video. Seconds; `--steps` trains for longer."""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import worldline
from worldline.learn.ppo import PPOConfig, ppo
from worldline.learn.rollout import evaluator, record
from worldline.learn.run import run
from worldline.report import render_episode
from worldline.variation import Domain, Uniform, scale

MJCF = """
<mujoco model="balancer">
  <option timestep="0.005"/>
  <worldbody>
    <light pos="0 0 3" directional="true"/>
    <geom type="plane" size="50 50 1" rgba="0.8 0.8 0.8 1"/>
    <body name="frame" pos="0 0 0.1">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="z" type="slide" axis="0 0 1"/>
      <joint name="pitch" type="hinge" axis="0 1 0"/>
      <geom type="box" size="0.05 0.1 0.2" pos="0 0 0.25" mass="4"
            rgba="0.9 0.5 0.2 1"/>
      <site name="head" pos="0 0 0.45"/>
      <body name="wheels">
        <joint name="axle" type="hinge" axis="0 1 0"/>
        <geom type="cylinder" size="0.1 0.12" euler="90 0 0" mass="1"
              rgba="0.2 0.2 0.3 1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="axle" joint="axle" ctrlrange="-3 3"/></actuator>
</mujoco>
"""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Balancer(worldline.Task):
    """Drive on two wheels at a speed that is drawn for the episode."""

    control_timestep: float = 0.02
    """Seconds between two actions; a multiple of the model's time step."""
    episode_length: int = 500
    """Control steps; then the episode is truncated."""
    fastest: float = 1.5
    """Speeds are drawn between this and its negative, m/s."""

    @property
    def fields(self):
        return ("site_xpos",)

    def mjcf(self):
        return MJCF

    def start(self, key):
        pitch_key, speed_key = jax.random.split(key)
        pitch = jax.random.uniform(pitch_key, minval=-0.1, maxval=0.1)
        speed = self.fastest * jax.random.uniform(speed_key, minval=-1.0)
        qpos = jnp.array([0.0, 0.0, pitch, 0.0])
        return worldline.Start(qpos=qpos, qvel=jnp.zeros(4), memory=speed)

    @property
    def action_bounds(self):
        return -np.ones(1, np.float32), np.ones(1, np.float32)

    def control(self, action, physics, memory):
        return action * self.model.ctrlrange[:, 1]

    def observe(self, physics, memory):
        return jnp.concatenate([physics.qpos[2:3], physics.qvel, memory[None]])

    def outcome(self, before, action, after, memory):
        height = after.fields["site_xpos"][self.model.id("site", "head"), 2]
        error = after.qvel[0] - memory
        return worldline.Outcome(
            reward=jnp.exp(-(error**2)),
            terminated=height < 0.35,
            memory=memory,
            metrics={"speed_error": jnp.abs(error)},
        )


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100_000)
steps = parser.parse_args().steps

env = worldline.Env(Balancer())
# Another load for every episode of every world.
domain = Domain(scale(("body_mass", "body_inertia"), Uniform(0.7, 1.5), per="world"))

config = PPOConfig(num_worlds=64, unroll_length=32, minibatches=8)
learner = ppo(worldline.Worlds(env, config.num_worlds, domain=domain), config)
state = learner.init(jax.random.key(0))
for progress in run(learner, state, steps):
    state = progress.state
    if progress.step % 20_480 == 0:
        error = progress.metrics["train/speed_error"]
        print(f"{progress.step:8,} steps, off the speed by {error:.2f} m/s on average")

policy = learner.policy(state)
result = evaluator(env, num_episodes=16)(policy, jax.random.key(1))
print(f"return {result.episode_return.mean():.0f} in {result.episode_length.mean():.0f} steps")

episode = record(env, policy, jax.random.key(2), steps=250)
timestep = env.task.control_timestep
clip = render_episode(env.model, episode.qpos, "balancer.mp4", "balancer.png", timestep=timestep)
print(f"balancer.mp4 and balancer.png: {clip.note}")
