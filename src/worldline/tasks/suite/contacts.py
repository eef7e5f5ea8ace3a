"""Whether anything touches anything in a pose: kinematics and distances in pure JAX.

For starts that must be free of contact: a start calls no engine, and this little of one is enough.
It knows hinges, slides and free joints; spheres, capsules, boxes and planes, of which boxes and
planes touch spheres and capsules alone. Distances between segments and of a point to a box:
Ericson (2005), "Real-Time Collision Detection", sections 5.1.3 and 5.1.9.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from worldline.model import Model
from worldline.types import Array, NDArray, Variation
from worldline.variation.effects import touching

_ROUND = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE)


class Contacts:
    """What may touch in a model, and whether it does.

    Args:
        model: the model.
        without: names of geoms to leave out, since another always touches before they do.
    """

    def __init__(self, model: Model, without: tuple[str, ...] = ()) -> None:
        self.model = model
        mj = model.mj
        pairs = np.argwhere(np.triu(touching(model)))
        out = [model.id("geom", name) for name in without]
        pairs = pairs[~np.isin(pairs, out).any(axis=1)]
        round_ = np.isin(mj.geom_type, _ROUND)
        both = round_[pairs].all(axis=1)
        self._round_pairs = pairs[both]
        mixed = pairs[~both]
        mixed = np.where(round_[mixed[:, :1]], mixed, mixed[:, ::-1])  # the round one first
        kinds = mj.geom_type[mixed[:, 1]]
        self._on_planes = mixed[kinds == mujoco.mjtGeom.mjGEOM_PLANE]
        self._on_boxes = mixed[kinds == mujoco.mjtGeom.mjGEOM_BOX]
        known = sum(map(len, (self._round_pairs, self._on_planes, self._on_boxes)))
        assert known == len(pairs), "a geom is of a type that this class does not know"
        capsule = mj.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE
        self._half_length = np.where(capsule, mj.geom_size[:, 1], 0.0).astype(np.float32)
        self._radius = np.where(round_, mj.geom_size[:, 0], 0.0).astype(np.float32)

    def gap(self, qpos: Array, variation: Variation | None = None) -> Array:
        """The distance between what is nearest, `()`, m; negative where things overlap.

        Args:
            qpos: `(nq,)`.
            variation: other values of `body_pos` and `body_quat`.
        """
        xpos, xmat = kinematics(self.model, qpos, variation)
        mj = self.model.mj
        center, frame = self._frames(xpos, xmat)
        half = frame[:, :, 2] * self._half_length[:, None]

        def ends(pairs: NDArray, column: int) -> tuple[Array, Array]:
            geom = pairs[:, column]
            return center[geom] - half[geom], center[geom] + half[geom]

        pairs, plane, box = self._round_pairs, self._on_planes[:, 1], self._on_boxes[:, 1]
        apart = jax.vmap(_between_segments)(*ends(pairs, 0), *ends(pairs, 1))
        heights = [
            jnp.einsum("ij,ij->i", end - center[plane], frame[plane, :, 2])
            for end in ends(self._on_planes, 0)
        ]
        one, other = (
            jnp.einsum("ij,ijk->ik", end - center[box], frame[box])
            for end in ends(self._on_boxes, 0)
        )
        size = jnp.asarray(mj.geom_size[box], jnp.float32)
        gaps = [
            apart - self._radius[pairs].sum(axis=1),
            jnp.minimum(*heights) - self._radius[self._on_planes[:, 0]],
            jax.vmap(_segment_to_box)(one, other, size) - self._radius[self._on_boxes[:, 0]],
        ]
        return jnp.min(jnp.concatenate(gaps))

    def free(self, qpos: Array) -> Array:
        """Whether nothing touches in a pose `(nq,)`: `()` bool."""
        return self.gap(qpos) > 0

    def _frames(self, xpos: Array, xmat: Array) -> tuple[Array, Array]:
        """Centres `(ngeom, 3)` and orientations `(ngeom, 3, 3)` of the geoms."""
        mj = self.model.mj
        body, place = mj.geom_bodyid, jnp.asarray(mj.geom_pos, jnp.float32)
        own = jnp.asarray(_matrices(mj.geom_quat))
        return xpos[body] + jnp.einsum("gij,gj->gi", xmat[body], place), xmat[body] @ own


class _Links(NamedTuple):
    """The bodies as a chain of links of at most one joint each, the world's first: L of them."""

    before: NDArray
    """The link that each hangs on, `(L,)`."""
    joint: NDArray
    """Its joint, `(L,)`; -1 for none."""
    starts: NDArray
    """Whether it is the first of its body, `(L,)` bool."""
    ends: NDArray
    """The last link of each body, `(nbody,)`."""
    body: NDArray
    """`(L,)`"""


def _links(mj: mujoco.MjModel) -> _Links:
    counts = np.maximum(mj.body_jntnum, 1)
    body, ends = np.repeat(np.arange(mj.nbody), counts), np.cumsum(counts) - 1
    links = np.arange(len(body))
    of_body = links - (ends + 1 - counts)[body]  # counted from the first link of its body
    before = np.where(of_body > 0, links - 1, ends[mj.body_parentid[body]])
    joint = np.where(mj.body_jntnum[body] > 0, mj.body_jntadr[body] + of_body, -1)
    return _Links(before, joint, of_body == 0, ends, body)


def kinematics(
    model: Model, qpos: Array, variation: Variation | None = None
) -> tuple[Array, Array]:
    """Where the bodies are: MuJoCo's `xpos` `(nbody, 3)` and `xmat` `(nbody, 3, 3)`.

    A scan over the joints, which compiles in no time, rather than a long program.

    Args:
        model: the model; without ball joints.
        qpos: `(nq,)`.
        variation: other values of `body_pos` and `body_quat`.
    """
    mj, given = model.mj, variation or {}
    links = _links(mj)
    free = links.joint[mj.jnt_type[links.joint] == mujoco.mjtJoint.mjJNT_FREE]
    pos = jnp.asarray(given.get("body_pos", mj.body_pos), float)
    turned = given.get("body_quat")
    mat = (
        jnp.asarray(_matrices(mj.body_quat), float) if turned is None else jax.vmap(matrix)(turned)
    )
    for joint in free[free >= 0]:
        body, at = int(mj.jnt_bodyid[joint]), int(mj.jnt_qposadr[joint])
        pos = pos.at[body].set(qpos[at : at + 3])
        mat = mat.at[body].set(matrix(qpos[at + 3 : at + 7]))
    starts = links.starts[:, None]
    steps: tuple[Array, ...] = (
        jnp.arange(len(links.joint)),
        jnp.asarray(links.before),
        jnp.where(starts, pos[links.body], 0.0),
        jnp.where(starts[:, None], mat[links.body], jnp.eye(3)),
        *_motions(mj, links, qpos),
    )

    def step(
        carry: tuple[Array, Array], link: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], None]:
        places, frames = carry
        number, before, place, frame, axis, about, slide, turn = link
        place = places[before] + frames[before] @ place
        frame = frames[before] @ frame
        turned = frame @ turn
        place = place + frame @ (about + slide * axis) - turned @ about
        return (places.at[number].set(place), frames.at[number].set(turned)), None

    nlinks = len(links.joint)
    begin = (jnp.zeros((nlinks, 3)), jnp.broadcast_to(jnp.eye(3), (nlinks, 3, 3)))
    (places, frames), _ = jax.lax.scan(step, begin, steps)
    return places[links.ends], frames[links.ends]


def _motions(mj: mujoco.MjModel, links: _Links, qpos: Array) -> tuple[Array, Array, Array, Array]:
    """Of each link: its joint's axis and anchor, `(L, 3)`, the way it slides, `(L,)`, and the
    rotation by which it turns, `(L, 3, 3)`.
    """
    kind = np.where(links.joint < 0, -1, mj.jnt_type[links.joint])
    assert not (kind == mujoco.mjtJoint.mjJNT_BALL).any(), "kinematics knows no ball joints"
    slides, turns = (kind == k for k in (mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE))
    moves = slides | turns
    axis = np.where(moves[:, None], mj.jnt_axis[links.joint], [0.0, 0.0, 1.0]).astype(np.float32)
    about = np.where(moves[:, None], mj.jnt_pos[links.joint], 0.0).astype(np.float32)
    at = mj.jnt_qposadr[links.joint]
    by = jnp.where(moves, qpos[at] - mj.qpos0[at].astype(np.float32), 0.0)
    angle = jnp.where(turns, by, 0.0)[:, None, None]
    cross = np.cross(np.eye(3), axis[:, None]).astype(np.float32)  # cross @ v is axis x v
    turn = jnp.eye(3) + jnp.sin(angle) * cross + (1 - jnp.cos(angle)) * (cross @ cross)
    return jnp.asarray(axis), jnp.asarray(about), jnp.where(slides, by, 0.0), turn


def matrix(quaternion: Array) -> Array:
    """The rotation matrix of a unit quaternion `(4,)`, `w` first: `(3, 3)`."""
    w, x, y, z = quaternion
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row) for row in rows])


def _matrices(quaternions: NDArray) -> NDArray:
    """Rotation matrices of constant quaternions, `(n, 3, 3)` float32."""
    matrices = np.empty((len(quaternions), 9))
    for quaternion, row in zip(quaternions, matrices, strict=True):
        mujoco.mju_quat2Mat(row, quaternion)
    return matrices.reshape(-1, 3, 3).astype(np.float32)


def _between_segments(a: Array, b: Array, c: Array, d: Array) -> Array:
    """The distance of the segments from `a` to `b` and from `c` to `d`, each perhaps a point."""
    at_ends = [
        _point_to_segment(a, c, d),
        _point_to_segment(b, c, d),
        _point_to_segment(c, a, b),
        _point_to_segment(d, a, b),
    ]
    u, v, w = b - a, d - c, a - c
    uu, uv, vv, uw, vw = u @ u, u @ v, v @ v, u @ w, v @ w
    scale = uu * vv
    determinant = scale - uv * uv
    crossing = determinant > 1e-6 * scale
    safe = jnp.where(crossing, determinant, 1.0)
    s, t = (uv * vw - vv * uw) / safe, (uu * vw - uv * uw) / safe
    inside = crossing & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    within = jnp.where(inside, jnp.linalg.norm(w + s * u - t * v), jnp.inf)
    return functools.reduce(jnp.minimum, at_ends, within)


def _point_to_segment(point: Array, a: Array, b: Array) -> Array:
    way, length = b - a, (b - a) @ (b - a)
    along = jnp.where(length > 0, (point - a) @ way / jnp.where(length > 0, length, 1.0), 0.0)
    return jnp.linalg.norm(point - a - jnp.clip(along, 0.0, 1.0) * way)


def _segment_to_box(a: Array, b: Array, size: Array) -> Array:
    """The distance of a segment to a box of half sizes `size` about the origin; 0 inside.

    A point's distance to a box is convex along a segment: a ternary search finds its minimum.
    """

    def distance(along: Array) -> Array:
        point = a + along * (b - a)
        return jnp.linalg.norm(jnp.maximum(jnp.abs(point) - size, 0.0))

    def narrow(_: int, limits: Array) -> Array:
        low, high = limits
        left, right = low + (high - low) / 3, high - (high - low) / 3
        nearer_left = distance(left) < distance(right)
        return jnp.stack([jnp.where(nearer_left, low, left), jnp.where(nearer_left, right, high)])

    low, high = jax.lax.fori_loop(0, 30, narrow, jnp.array([0.0, 1.0]))
    return distance((low + high) / 2)
