"""MJX's passive forces as MuJoCo's, where the two differ."""

from __future__ import annotations

from worldline.physics.mjx.source import mjx, mjx_passive

_OFF = {
    mjx.DisableBit.SPRING: ("jnt_stiffness", "tendon_stiffness"),
    mjx.DisableBit.DAMPER: ("dof_damping", "tendon_damping"),
}


def passive(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """Forces of springs and dampers, of the compensation of gravity, and of fluids.

    If springs or dampers are switched off, MJX leaves out all of them; MuJoCo only if both are.
    """
    flags = model.opt.disableflags
    off = [flag for flag in _OFF if flags & flag]
    if len(off) == 1:
        none = {name: 0 * getattr(model, name) for name in _OFF[off[0]]}
        opt = model.opt.replace(disableflags=flags & ~off[0])
        model = model.replace(opt=opt, **none)
    return mjx_passive.passive(model, data)
