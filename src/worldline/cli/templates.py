"""The texts of the files that `worldline init` writes."""

from __future__ import annotations

from string import Template

#: Statements of `mjcf` that add to the model in `spec`, from their second line on indented.
FLOOR = """checker, flat = mujoco.mjtBuiltin.mjBUILTIN_CHECKER, mujoco.mjtTexture.mjTEXTURE_2D
        colours = {"rgb1": (0.5, 0.53, 0.57), "rgb2": (0.4, 0.43, 0.47)}
        spec.add_texture(name=$name, type=flat, builtin=checker, width=256, height=256, **colours)
        floor = spec.add_material(name=$name, texuniform=True, texrepeat=(1, 1))
        floor.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = $name
        plane = mujoco.mjtGeom.mjGEOM_PLANE
        spec.worldbody.add_geom(name=$name, material=$name, type=plane, size=(50, 50, 1)$touches)"""

LIGHT = """sun = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
        spec.worldbody.add_light(type=sun, pos=(0, 0, 4), dir=(0.2, 0.2, -1))"""

MOTORS = """for joint, force in MOTORS.items():
            motor = spec.add_actuator(name=joint, target=joint)
            motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
            motor.set_to_motor()
            motor.gear[0], motor.ctrllimited, motor.ctrlrange = force, True, (-1.0, 1.0)"""

SERVOS = """# Servos are stiff: this integrator is stable with few time steps.
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        spec.option.timestep = 0.005
        for joint, (stiffness, damping, force) in SERVOS.items():
            servo = spec.add_actuator(name=joint, target=joint)
            servo.trntype, servo.inheritrange = mujoco.mjtTrn.mjTRN_JOINT, 1.0
            servo.set_to_position(kp=stiffness, kv=damping)
            servo.forcelimited, servo.forcerange = True, (-force, force)"""

SERVO_TABLE = """
#: YOURS: the servo of each joint: stiffness, N m/rad; damping, N m s/rad; largest torque, N m.
SERVOS = {
$rows}
"""

REACH = """
    action_scale: float = 0.5
    \"\"\"How far an action of 1 moves a joint from the stance, rad.\"\"\""""

SERVO_CONTROL = """mj, (low, high) = self.model.mj, self.model.ctrlrange.T
        stance = np.array(STANCE)[mj.jnt_qposadr[mj.actuator_trnid[:, 0]]]
        return jnp.clip(stance + self.action_scale * action, low, high)"""

MOTOR_CONTROL = """low, high = np.clip(self.model.ctrlrange.T, -1e6, 1e6)
        low, high = np.where(high - low < 1e6, low, -1.0), np.where(high - low < 1e6, high, 1.0)
        rest = $rest
        return rest + action * jnp.where(action < 0, rest - low, high - rest)"""

#: A task of anything that moves.
MOVING = Template('''\
"""$name: a task to fill in, written by `worldline init`.

    python $file

checks the task, trains a policy, and writes a run folder with a learning curve and a video.
`worldline train $file` trains it with all options of the command line. The word YOURS marks the
places to change.
"""

import dataclasses
$path
import jax
import jax.numpy as jnp
${mujoco}import numpy as np
import worldline
${robots}from worldline.learn.ppo import PPOConfig
from worldline.train import TrainConfig, train
from worldline.tuning import tune_process

MJCF = $mjcf
$actuators_table

@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class $task(worldline.Task):
    """YOURS: what the robot should do.

    It has $joints and
    $actuators.
    Observation `($nobs,)`: positions (without x and y of a robot that moves freely), velocities.
    Action `($nact,)`: from -1 to 1, over the range of each actuator.
    """

    control_timestep: float = $control_timestep
    """Seconds between two actions; a multiple of the model's time step of $timestep s."""
    episode_length: int = 500
    """Control steps after which an episode is truncated; 0 for no limit."""
    effort_cost: float = 0.1
    """Cost of the mean of the squared actions."""

    def mjcf(self):
        """The model."""
        $source

    def start(self, key):
        """YOURS: where an episode begins. Now: near one pose, almost at rest, with noise."""
        joints_key, velocity_key = jax.random.split(key)
        qpos = $pose
        kind = self.model.mj.jnt_type  # 0 free, 1 ball, 2 slide, 3 hinge
        joints = self.model.mj.jnt_qposadr[kind >= 2]
        noise = 0.01 * jax.random.normal(joints_key, joints.shape)
        velocity = 0.01 * jax.random.normal(velocity_key, (self.model.nv,))
        return worldline.Start(qpos=qpos.at[joints].add(noise), qvel=velocity)

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

    def observe(self, physics, memory):
        """YOURS: what the policy observes. `fields` can name more fields of MuJoCo's MjData."""
        free = self.model.mj.jnt_type[0] == 0
        return jnp.concatenate([physics.qpos[2 if free else 0 :], physics.qvel])

    def outcome(self, before, action, after, memory):
        """YOURS: the reward of a step, and whether the episode is over."""
        # Now: move along the first coordinate, which is x for a robot that moves freely.
        speed = after.qvel[0]
        effort = jnp.mean(jnp.square(action))
        return worldline.Outcome(
            reward=jnp.tanh(speed) - self.effort_cost * effort,
            # True if no more reward can come, for example after a fall: after.qpos[2] < 0.2
            terminated=jnp.asarray(False),
            metrics={"speed": speed, "effort": effort},
        )


if __name__ == "__main__":
    tune_process()  # keeps compiled programs on disk for the next run
    env = worldline.Env($task())
    for warning in worldline.check_env(env).warnings:  # a problem raises an error
        print("warning:", warning)
    result = train("$name", env, TrainConfig(steps=300_000), PPOConfig(num_worlds=64))
    print(result.folder, result.evaluation.episode_return.mean())
''')

#: A task of a robot that walks.
WALKING = Template('''\
"""$name: a robot that walks at a commanded speed, written by `worldline init`.

    python $file

checks the task, trains a policy, and writes a run folder with a learning curve and a video.
`worldline train $file` trains it with all options of the command line. The word YOURS marks the
places to change.
"""

import dataclasses
$path
import jax
import jax.numpy as jnp
${mujoco}import numpy as np
import worldline
${robots}from worldline.learn.ppo import PPOConfig
from worldline.train import TrainConfig, train
from worldline.tuning import tune_process

MJCF = $mjcf

#: YOURS: the stance in which episodes begin: `qpos`, joint by joint, from $stance_from.
STANCE = (
$stance)
#: Height of the root body above the floor in the stance, m.
HEIGHT = $height

#: YOURS: the body of each foot, the centre of its sole, and the phase of its swing in a stride.
FEET = {
$feet}
$actuators_table

@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class $task(worldline.Task):
    """Walk forward at the speed that is drawn for each episode.

    It has $joints and
    $actuators.
    Observation `($nobs,)`: velocity, turning and the vertical, in the frame of the root body;
    joint angles relative to the stance, and their velocities; the last action; the commanded
    speed; the gait's clock.
    Action `($nact,)`: from -1 to 1, $action_words.
    """

    defaults = {
        "ppo": {
            "num_worlds": 128,
            "unroll_length": 32,
            "minibatches": 8,
            "discount": 0.97,
            "actor_hidden": (128, 64),
            "critic_hidden": (128, 64),
            "initial_log_std": -1.0,
        },
        "train": {"steps": $steps},
    }
    fields = ("xpos", "xmat")  # of MuJoCo's MjData, for `observe` and `outcome`

    control_timestep: float = $control_timestep
    """Seconds between two actions; a multiple of the model's time step."""
    episode_length: int = 500
    """Control steps after which an episode is truncated; 0 for no limit."""
    slowest: float = 0.0
    """The smallest commanded speed, m/s; with `fastest` at the same value, the only one."""
    fastest: float = $speed  # YOURS
    """The largest commanded speed, m/s."""$reach
    gait_frequency: float = $frequency
    """Strides per second."""
    step_height: float = $step_height
    """How high a foot should swing, m."""

    def mjcf(self):
        """The model."""
        $source

    def start(self, key):
        """YOURS: where an episode begins. Now: in the stance with noise; it draws a speed."""
        joints_key, velocity_key, speed_key = jax.random.split(key, 3)
        mj, qpos = self.model.mj, jnp.array(STANCE).at[2].add(0.05 * HEIGHT)
        joints = mj.jnt_qposadr[mj.jnt_type >= 2]  # hinges and slides
        noise = 0.05 * jax.random.normal(joints_key, joints.shape)
        return worldline.Start(
            qpos=qpos.at[joints].add(noise),
            qvel=0.1 * jax.random.normal(velocity_key, (self.model.nv,)),
            memory={
                "speed": jax.random.uniform(
                    speed_key, minval=self.slowest, maxval=self.fastest
                ),
                "action": jnp.zeros(self.model.nu),
            },
        )

    @property
    def action_bounds(self):
        """From -1 to 1 for each actuator."""
        return -np.ones(self.model.nu, np.float32), np.ones(self.model.nu, np.float32)

    def control(self, action, physics, memory):
        """Maps an action to the controls; with servos, an action of 0 holds the stance."""
        $control

    def motion(self, physics):
        """Velocity, m/s, turning, rad/s, and the vertical, in the frame of the root body."""
        frame = physics.fields["xmat"][$root].reshape(3, 3)  # $root_name
        return physics.qvel[:3] @ frame, physics.qvel[3:6], frame[2]

    def swing(self, physics):
        """How high each foot should be now, m; a foot is lifted for half of a stride."""
        phases = np.array([phase for _, phase in FEET.values()])
        turn = 2 * jnp.pi * (self.gait_frequency * physics.time + phases)
        return self.step_height * jnp.maximum(jnp.sin(turn), 0.0)

    def foot_heights(self, physics):
        """Height of each foot above its height in the stance, m."""
        ids = np.array($foot_ids)
        points = np.array([point for point, _ in FEET.values()])
        ups = physics.fields["xmat"][ids].reshape(-1, 3, 3)[:, 2]
        floor = STANCE[2] - HEIGHT
        return physics.fields["xpos"][ids, 2] + jnp.sum(ups * points, axis=1) - floor

    def observe(self, physics, memory):
        """YOURS: what the policy observes."""
        clock = 2 * jnp.pi * self.gait_frequency * physics.time
        return jnp.concatenate([
            *self.motion(physics),
            physics.qpos[7:] - np.array(STANCE[7:]),
            0.1 * physics.qvel[6:],
            memory["action"],
            jnp.stack([memory["speed"], jnp.sin(clock), jnp.cos(clock)]),
        ])

    def outcome(self, before, action, after, memory):
        """YOURS: the reward of a step, and whether the episode is over."""
        velocity, turning, up = self.motion(after)
        error = jnp.hypot(velocity[0] - memory["speed"], velocity[1])
        misses = (self.foot_heights(after) - self.swing(after)) / self.step_height
        worth = (
            jnp.exp(-jnp.square(error / (0.5 * self.fastest)))
            + 0.5 * jnp.exp(-jnp.square(turning[2] / 0.4))
            + 0.4 * jnp.exp(-jnp.sum(jnp.square(misses)))
        )
        cost = (
            0.5 * jnp.square(velocity[2])
            + 2.0 * jnp.sum(jnp.square(up[:2]))
            + 0.02 * jnp.sum(jnp.square(turning[:2]))
            + 0.05 * jnp.sum(jnp.square(action - memory["action"]))
            + 0.05 * jnp.sum(jnp.square(after.qpos[7:] - np.array(STANCE[7:])))
        )
        fallen = (up[2] < 0.5) | (after.qpos[2] < STANCE[2] - 0.5 * HEIGHT)
        return worldline.Outcome(
            reward=jnp.maximum(worth - cost, 0.0),  # an early fall never pays
            terminated=fallen,
            memory=memory | {"action": action},
            metrics={"speed": velocity[0], "speed_error": error, "cost": cost},
        )


if __name__ == "__main__":
    tune_process()  # keeps compiled programs on disk for the next run
    task = $task()
    env = worldline.Env(task)
    for warning in worldline.check_env(env).warnings:  # a problem raises an error
        print("warning:", warning)
    run, algorithm = TrainConfig(**task.defaults["train"]), PPOConfig(**task.defaults["ppo"])
    result = train("$name", env, run, algorithm)
    print(result.folder, result.evaluation.episode_return.mean())
''')
