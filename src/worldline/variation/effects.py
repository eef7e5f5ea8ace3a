"""Finds constants that change no simulation, for example the range of a limit that is off."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from worldline.model import Model

#: Fields of a lowest and a highest value, and the field that says whether they are in force.
LIMITS = {
    "actuator_actrange": "actuator_actlimited",
    "actuator_ctrlrange": "actuator_ctrllimited",
    "actuator_forcerange": "actuator_forcelimited",
    "jnt_actfrcrange": "jnt_actfrclimited",
    "jnt_range": "jnt_limited",
    "tendon_actfrcrange": "tendon_actfrclimited",
    "tendon_range": "tendon_limited",
}

#: What two geoms give to their contact.
_OF_CONTACTS = frozenset(
    f"geom_{name}" for name in ("friction", "gap", "margin", "solimp", "solmix", "solref")
)

_OFF = mujoco.mjtDisableBit
#: Fields that a switch of the model's options turns off.
_SWITCHES = {
    "dof_damping": _OFF.mjDSBL_DAMPER,
    "dof_frictionloss": _OFF.mjDSBL_FRICTIONLOSS,
    "jnt_range": _OFF.mjDSBL_LIMIT,
    "jnt_stiffness": _OFF.mjDSBL_SPRING,
    "opt.gravity": _OFF.mjDSBL_GRAVITY,
    "tendon_damping": _OFF.mjDSBL_DAMPER,
    "tendon_frictionloss": _OFF.mjDSBL_FRICTIONLOSS,
    "tendon_range": _OFF.mjDSBL_LIMIT,
    "tendon_stiffness": _OFF.mjDSBL_SPRING,
    **dict.fromkeys(_OF_CONTACTS, _OFF.mjDSBL_CONTACT),
}


def why_idle(model: Model, field: str, rows: Any) -> str:
    """Why these rows of a field change no simulation, and what to do; empty if they may.

    Args:
        model: the model.
        field: an MjModel field, or `opt.<name>`.
        rows: the rows that change, `(n,)`.
    """
    mj = model.mj
    if not len(rows):
        return f"the model has no {field}"
    if mj.opt.disableflags & _SWITCHES.get(field, 0):
        name = _SWITCHES[field].name.removeprefix("mjDSBL_").lower()
        return f"""the model switches it off: <flag {name}="disable"/>"""
    if field in LIMITS and not getattr(mj, LIMITS[field])[rows].any():
        return f"""the limit is off ({LIMITS[field]} is 0); first give it a range in the MJCF"""
    if field in _OF_CONTACTS and not may_touch(model)[rows].any():
        if mj.npair:
            pairs = field.replace("geom_", "pair_")
            return f"their contacts come from <pair>, which has its own constants; vary {pairs}"
        return "these geoms cannot touch anything (contype and conaffinity)"
    if field == "opt.wind" and not (mj.opt.density or mj.opt.viscosity):
        return "there is no fluid; give the model a density or a viscosity"
    return ""


def may_touch(model: Model) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which geoms may have contacts with their own constants, `(ngeom,)`."""
    return np.asarray(touching(model).any(axis=1))


def touching(model: Model) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which pairs of geoms may have a contact with their own constants, `(ngeom, ngeom)`.

    These are MuJoCo's rules of "dynamic" pairs: by bits, not within a body, between fixed bodies,
    or between a body and its parent, and not those that `<pair>` or `<exclude>` names.
    """
    mj = model.mj
    if mj.opt.disableflags & _OFF.mjDSBL_CONTACT:
        return np.zeros((mj.ngeom, mj.ngeom), bool)
    bits = (mj.geom_contype[:, None] & mj.geom_conaffinity) > 0
    touch = bits | bits.T
    body = mj.body_weldid[mj.geom_bodyid]
    touch &= body[:, None] != body
    if not mj.opt.disableflags & _OFF.mjDSBL_FILTERPARENT:
        parent = mj.body_weldid[mj.body_parentid[body]]
        child = (parent[:, None] == body) & (body != 0)
        touch &= ~(child | child.T)
    for first, second in zip(mj.pair_geom1, mj.pair_geom2, strict=True):
        touch[first, second] = touch[second, first] = False
    for signature in mj.exclude_signature.tolist():
        pair = np.isin(mj.geom_bodyid, (signature >> 16, signature & 0xFFFF))
        touch &= ~(pair[:, None] & pair) | (mj.geom_bodyid[:, None] == mj.geom_bodyid)
    return touch


def touches(model: Model) -> bool:
    """Whether anything may touch anything."""
    off = model.mj.opt.disableflags & _OFF.mjDSBL_CONTACT
    return not off and bool(may_touch(model).any() or model.mj.npair)


def friction_fields(model: Model) -> tuple[str, ...]:
    """The fields that hold the friction of contacts, if they are not zero."""
    own = np.any(model.mj.geom_friction[may_touch(model)])
    pairs = np.any(model.mj.pair_friction) and touches(model)
    return ("geom_friction",) * bool(own) + ("pair_friction",) * bool(pairs)
