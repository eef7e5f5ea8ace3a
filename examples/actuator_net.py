"""A learned motor: a small network learns a motor's torque from a recording, and drives a task.

The recording is a CSV file of a test bench: voltage, speed and torque, each millisecond. Here it
comes from MuJoCo's own `dcmotor`, whose winding delays the torque: the network must find that out.
The task calls the network before each physics step, not once an action.
"""

import csv
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax

import worldline
from worldline.env.task import Outcome, Start
from worldline.learn.networks.mlp import MLP

PENDULUM = """
<mujoco>
  <option timestep="0.001"/>
  <size nuserdata="1"/>
  <worldbody>
    <body>
      <joint name="hinge" axis="0 1 0" damping="0.01"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.02" mass="0.3"/>
    </body>
  </worldbody>
  <actuator>{}</actuator>
</mujoco>"""
MOTOR = '<dcmotor joint="hinge" motorconst="0.2" resistance="2" inductance="0.02 0"/>'
PLAIN = '<motor joint="hinge"/>'

VOLTS, TORQUE, SPEED = 12.0, 1.0, 30.0  # sizes of what the network reads and gives
LOG = Path("bench.csv")


def record(seconds, seed):
    """The bench: voltages that jump, and what the motor does; `(time, volts, speed, torque)`."""
    random = np.random.default_rng(seed)
    model = mujoco.MjModel.from_xml_string(PENDULUM.format(MOTOR))
    data, rows = mujoco.MjData(model), []
    for millisecond in range(int(1000 * seconds)):
        if millisecond % 40 == 0:
            data.ctrl[0] = random.uniform(-VOLTS, VOLTS)
        speed = float(data.qvel[0])
        mujoco.mj_step(model, data)
        rows.append((millisecond / 1000, data.ctrl[0], speed, data.actuator_force[0]))
    return np.array(rows)


def torque_of(net, volts, speed, last):
    """The torque over the next millisecond, from the voltage, the speed and the last torque."""
    seen = jnp.stack([volts / VOLTS, speed / SPEED, last / TORQUE], axis=-1)
    return last + TORQUE * 0.2 * net(seen)[..., 0]


def learn(rows, steps=3000):
    """Fits the network to the recording."""
    volts, speed, torque = jnp.float32(rows[:, 1:]).T
    inputs, wanted = (volts[1:], speed[1:], torque[:-1]), torque[1:]

    def loss(net, rows):
        guess = torque_of(net, *(x[rows] for x in inputs))
        return jnp.mean((guess - wanted[rows]) ** 2) / TORQUE**2

    net = MLP.initial(jax.random.key(0), (3, 32, 32, 1), "tanh", last_gain=0.1)
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, steps))

    @jax.jit
    def train(net, key):
        def update(carry, key):
            net, state = carry
            batch = jax.random.randint(key, (256,), 0, len(wanted))
            gradient = jax.grad(loss)(net, batch)
            change, state = optimizer.update(gradient, state)
            return (optax.apply_updates(net, change), state), None

        return jax.lax.scan(update, (net, optimizer.init(net)), jax.random.split(key, steps))[0][0]

    return train(net, jax.random.key(1))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Swing(worldline.Task):
    """Swing the pendulum with the learned motor; an action is a voltage, over 20 ms."""

    net: MLP
    control_timestep: float = 0.02
    episode_length: int = 200
    control_at_physics_rate = True

    def mjcf(self):
        return PENDULUM.format(PLAIN)

    @property
    def fields(self):
        return ("userdata",)  # the last torque

    @property
    def action_bounds(self):
        return -np.ones(1, np.float32), np.ones(1, np.float32)

    def start(self, key):
        return Start(jnp.zeros(1), jnp.zeros(1), inputs={"userdata": jnp.zeros(1)})

    def control(self, action, physics, memory):
        last = physics.fields["userdata"][0]
        torque = torque_of(self.net, VOLTS * action[0], physics.qvel[0], last)
        return {"ctrl": torque[None], "userdata": torque[None]}

    def observe(self, physics, memory):
        return jnp.concatenate([jnp.cos(physics.qpos), jnp.sin(physics.qpos), physics.qvel])

    def outcome(self, before, action, after, memory):
        return Outcome(reward=-jnp.cos(after.qpos[0]), terminated=jnp.asarray(False))


with LOG.open("w", newline="") as file:
    log = csv.writer(file)
    log.writerow(["time", "volts", "speed", "torque"])
    log.writerows(record(seconds=20, seed=0).tolist())
net = learn(np.loadtxt(LOG, delimiter=",", skiprows=1))

# New voltages: the task with the learned motor beside MuJoCo's own.
env = worldline.Env(Swing(net=net))
real = mujoco.MjModel.from_xml_string(PENDULUM.format(MOTOR))
data, actions = (
    mujoco.MjData(real),
    np.random.default_rng(1).uniform(-1, 1, (10, 1)).repeat(5, axis=0),
)
theirs = []
for action in actions:
    data.ctrl[:] = VOLTS * action
    mujoco.mj_step(real, data, 20)
    theirs.append(data.qpos[0])


def step(state, action):
    state = env.step(state, action)
    return state, state.physics.qpos[0]


_, ours = jax.jit(lambda key, actions: jax.lax.scan(step, env.reset(key), actions))(
    jax.random.key(0), jnp.float32(actions)
)
error, moved = np.sqrt(np.mean((ours - np.array(theirs)) ** 2)), np.std(theirs)
print(f"after {len(actions) * 20} ms: off by {error:.4f} rad, where the joint moves by {moved:.2f}")
assert error < 0.1 * moved
