"""The device on which a run learns."""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
from jax.sharding import Mesh

from worldline.env.env import Env
from worldline.errors import ConfigError, install_command
from worldline.learn.algorithms import name_of_algorithm
from worldline.parallel.devices import cpu_device, default_device
from worldline.rendering.camera import image_names

LearnerDevice: TypeAlias = Literal["auto", "cpu", "gpu"]

#: Multiplications in a gradient step from which an accelerator learns sooner than a CPU. A step
#: there takes half a millisecond however small it is, in which a CPU of 16 cores makes about so
#: many. An estimate: it has not been measured on a card.
_WORTH_AN_ACCELERATOR = 2**25


class Chosen(NamedTuple):
    """The device on which a run learns."""

    device: jax.Device
    note: str
    """A line that names the device and the reason; empty if there is no choice."""


def choose(wanted: LearnerDevice, env: Env, algorithm: Any) -> Chosen:
    """Chooses the device for learning; worlds are always simulated on `env.device`.

    Args:
        wanted: `"auto"` is the worlds' own device if it is an accelerator. Otherwise it is an
            accelerator, if there is one and a gradient step is large enough to be faster there.
        env: the environment to act in.
        algorithm: the configuration of the algorithm.

    Raises:
        ConfigError: a GPU is wanted, but JAX has none.
    """
    accelerator = next((d for d in jax.local_devices() if d.platform != "cpu"), None)
    if accelerator is None:
        if wanted == "gpu":
            raise ConfigError(
                "learner_device is 'gpu', but JAX has no accelerator here; give cpu or auto, or "
                f"install JAX for the GPU, for example with {install_command('cuda')}"
            )
        at_once = wanted == "auto"
        return Chosen(default_device() if at_once else cpu_device(), "")
    acts_on_cpu = env.device.platform == "cpu"
    if name_of_algorithm(algorithm) == "shac":
        asked = wanted != "auto" and acts_on_cpu == (wanted == "gpu")
        why = "shac learns on the device of the worlds, since its gradients go through the physics"
        return Chosen(env.device, f"{why}; learner_device {wanted} is ignored" if asked else "")
    if wanted == "auto":
        worth = not acts_on_cpu or _worth_an_accelerator(env, algorithm)
        why = "the worlds are there" if not acts_on_cpu else "gradient steps are large"
        why = why if worth else "gradient steps are small"
        device = accelerator if worth else cpu_device()
    else:
        why = f"--learner-device {wanted}"
        device = accelerator if wanted == "gpu" else cpu_device()
    acts = env.device.device_kind if not acts_on_cpu else "the CPU"
    learns = device.device_kind if device.platform != "cpu" else "the CPU"
    return Chosen(device, f"worlds on {acts}, learning on {learns}: {why}")


def sharing(mesh: Mesh | None, env: Env) -> Mesh | None:
    """The devices of a mesh that share worlds; None: one device has them all.

    If worlds are simulated on the CPU, several accelerators of a process do not share them: only
    one learns.

    Raises:
        ConfigError: the devices belong to several processes.
    """
    if mesh is None or mesh.devices.flat[0].platform == env.device.platform:
        return mesh
    if jax.process_count() > 1:
        raise ConfigError(
            f"{jax.process_count()} processes with {mesh.devices.flat[0].device_kind} cannot share "
            f"worlds of the engine {env.physics.name!r}, which simulates on a CPU; set "
            "JAX_PLATFORMS=cpu, or use physics='mjx' or physics='warp'"
        )
    return None


def _worth_an_accelerator(env: Env, algorithm: Any) -> bool:
    """Whether a gradient step is large: images, or many samples in wide layers."""
    if image_names(algorithm.obs_read):
        return True
    minibatches = getattr(algorithm, "minibatches", 1)
    samples = getattr(algorithm, "batch_size", algorithm.steps_per_update // minibatches)
    space = env.observation_space
    parts = getattr(space, "spaces", {"state": space})
    observed = sum(math.prod(parts[name].shape) for name in algorithm.actor_obs)
    layers = (observed, *algorithm.actor_hidden), (observed, *algorithm.critic_hidden)
    weights = sum(a * b for sizes in layers for a, b in itertools.pairwise(sizes))
    return 3 * samples * weights >= _WORTH_AN_ACCELERATOR
