"""What Playground draws of a humanoid's model for each world: the domains called `playground`."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.model import Model
from worldline.types import Array, Key
from worldline.variation.distributions import Uniform
from worldline.variation.domain import CustomDomain, Domain, Ranges, Term, add, scale, set_
from worldline.variation.targets import Objects, actuator, body, geom, joint

#: Bounds of a uniform distribution.
Bounds = tuple[float, float]


def g1_domain(model: Model) -> CustomDomain:
    """The Unitree G1's: the friction of both feet on the floor, alike, and its body."""
    floor = model.id("geom", "floor")
    pairs = model.mj.pair_geom1, model.mj.pair_geom2
    feet = np.flatnonzero(np.any([ends == floor for ends in pairs], axis=0))
    of_body = Domain(*_of_body(model, "torso_link", friction=(0.5, 2.0)))

    def draw(key: Key, model: Model, ranges: Ranges) -> Mapping[str, Array]:
        floor_key, body_key = jax.random.split(key)
        sliding = ranges["floor friction"].sample(floor_key)
        friction = jnp.asarray(model.constant("pair_friction"), jnp.float32)
        drawn = of_body(body_key, model, {name: ranges[name] for name in of_body.ranges})
        return {**drawn, "pair_friction": friction.at[feet, :2].set(sliding)}

    return CustomDomain(draw, {"floor friction": Uniform(0.4, 1.0), **of_body.ranges})


def t1_domain(model: Model) -> Domain:
    """The Booster T1's: the friction of the floor, its body, and its servos."""
    servos = actuator("*")
    ankles = joint("*_Ankle_Pitch", "*_Ankle_Roll")
    return Domain(
        _floor(model, (0.2, 0.6)),
        *_of_body(model, "Trunk", mass=(0.98, 1.02)),
        scale((servos.gainprm, servos.biasprm), Uniform(0.9, 1.1), name="stiffness"),
        scale(ankles.damping, Uniform(0.5, 2.0), name="damping of the ankles"),
    )


def berkeley_domain(model: Model) -> Domain:
    """The Berkeley Humanoid's: the friction of the floor, and its body."""
    return Domain(_floor(model, (0.4, 1.0)), *_of_body(model, "torso"))


def _floor(model: Model, bounds: Bounds) -> Term:
    """The sliding friction of the floor."""
    sliding = model.constant("geom_friction")[model.id("geom", "floor")]
    low, high = ([share, *sliding[1:]] for share in bounds)
    return set_(geom("floor").friction, Uniform(low, high), name="floor friction")


def _of_body(
    model: Model, torso: str, friction: Bounds = (0.9, 1.1), mass: Bounds = (0.9, 1.1)
) -> tuple[Term, ...]:
    """Friction, inertia and zeros of the joints, and masses of the bodies.

    Args:
        model: the robot.
        torso: the body that carries a load.
        friction: factors of the friction of each joint.
        mass: factors of the mass of each body.
    """
    legs = _joints(model)
    return (
        scale(legs.frictionloss, Uniform(*friction), name="joint friction"),
        scale(legs.armature, Uniform(1.0, 1.05), name="armature"),
        scale("body_mass", Uniform(*mass), name="mass"),
        add(body(torso).mass, Uniform(-1.0, 1.0), name="load"),
        add(legs.qpos0, Uniform(-0.05, 0.05), name="joint offsets"),
    )


def _joints(model: Model) -> Objects:
    """The joints that are not free."""
    turns = model.mj.jnt_type != mujoco.mjtJoint.mjJNT_FREE
    names = model.names("joint")
    return joint(*(name for name, turning in zip(names, turns, strict=True) if turning))
