"""MJX's inertia as MuJoCo's, where the two differ."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from worldline.physics.mjx.source import mjx, mjx_smooth


def tendon_armature(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """Adds the inertia of tendons to that of bodies.

    What a tendon couples across branches of a tree, or across trees, MuJoCo leaves out.
    """
    added = mjx_smooth.tendon_armature(model, data)
    if not model.ntendon or added._impl.M.ndim == 1:  # a sparse matrix has no place for the rest
        return added
    matrix = jnp.where(coupled(model), added._impl.M, data._impl.M)
    return added.tree_replace({"_impl.M": matrix})


def coupled(model: mjx.Model) -> np.ndarray:
    """Which degrees of freedom MuJoCo's inertia matrix couples, `(nv, nv)` bool."""
    kept = np.zeros((model.nv, model.nv), bool)
    kept[np.repeat(np.arange(model.nv), model.M_rownnz), model.M_colind] = True
    return kept | kept.T
