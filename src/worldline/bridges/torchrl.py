"""Worlds as a TorchRL environment of any batch shape, with partial resets and with gradients.

TorchRL expects the true successor under `"next"`, and then a reset of the worlds with ended
episodes. `Worlds.step` begins their new episodes in the step that ends the old ones, so this reset
only returns them.

The environment is a function of its tensordict, which has the worlds as a tensor `"world"` with a
row of 32-bit words for each world. If you keep a tensordict, you can step from it as often as you
like. With `requires_grad` it also carries the real numbers of the worlds as `"world_reals"`, and
gradients pass through them from step to step.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np

from worldline.bridges.packed_worlds import FLAGS, REALS, WORLD, PackedWorlds, parts_of
from worldline.bridges.render import RENDER_SIZE, LastStep, WorldsRenderer
from worldline.bridges.resets import seed_keys
from worldline.env.worlds import DomainLike, Worlds
from worldline.errors import ConfigError, MissingExtraError, WorldlineError
from worldline.physics import Engine
from worldline.tasks import registry
from worldline.types import Array, Key, NDArray

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Binary, Bounded, Composite, Unbounded
    from torchrl.envs import EnvBase
except ImportError as error:
    raise MissingExtraError("the TorchRL bridge", "torchrl") from error

#: The name of the pictures in a tensordict.
PIXELS = "pixels"


class SecondDerivativeError(WorldlineError, RuntimeError):
    """A second derivative, which steps do not have."""


class _TaskNames:
    """A class attribute: the names of all tasks."""

    def __get__(self, instance: object, owner: type) -> list[str]:
        return registry.list_tasks()


class WorldlineWrapper(EnvBase):  # type: ignore[misc] # TorchRL is untyped
    """Worlds as a TorchRL environment.

    The observation has the key `"observation"`; if the task returns a dict, the observation has the
    keys of this dict. Depth images (uint16) become int32, because torch supports few operations on
    uint16. World i is seeded with `seed + i`, as in `worldline.bridges.gymnasium.VectorEnv`;
    without a seed, torch's random generator draws one.

    Args:
        worlds: the worlds.
        batch_size: any shape with as many elements as there are worlds; None: `[num_worlds]`.
        device: where the tensors are; None: the CPU.
        frame_skip: how many times each action is taken. Rewards are summed until the episode ends;
            the observation, with its images, is that of the last step.
        requires_grad: whether gradients flow from rewards and observations back to the actions and
            to `"world_reals"`; the engine must be differentiable. A second derivative raises
            SecondDerivativeError.
        from_pixels: whether to add `"pixels"` to the observation: a picture of each world,
            `(height, width, 3)` uint8.
        pixels_only: whether to leave everything else out of the observation.
        pixels_size: height and width of a picture, in pixels.
        categorical_action_encoding: ignored, because the actions are continuous; TorchRL's other
            environments have this argument.
        seed: as if given to `set_seed`.

    Raises:
        ConfigError: a batch size with another number of elements, a `frame_skip` below 1,
            `pixels_only` without `from_pixels`, or `requires_grad` where the engine has no
            derivatives.
    """

    available_envs = _TaskNames()
    _has_frame_skip = True
    _supports_set_state = True

    def __init__(
        self,
        worlds: Worlds,
        *,
        batch_size: Sequence[int] | None = None,
        device: Any = None,
        frame_skip: int = 1,
        requires_grad: bool = False,
        from_pixels: bool = False,
        pixels_only: bool = False,
        pixels_size: tuple[int, int] = RENDER_SIZE,
        categorical_action_encoding: bool = False,
        seed: int | None = None,
    ) -> None:
        del categorical_action_encoding
        shape = torch.Size([worlds.num_worlds] if batch_size is None else batch_size)
        if shape.numel() != worlds.num_worlds:
            raise ConfigError(
                f"batch_size {list(shape)} has {shape.numel()} elements for {worlds.num_worlds} "
                "worlds; give a shape with this number of elements"
            )
        if frame_skip < 1:
            raise ConfigError(f"frame_skip is {frame_skip}; give 1 to take each action once")
        if pixels_only and not from_pixels:
            raise ConfigError("pixels_only works only with from_pixels; set from_pixels too")
        if requires_grad and not worlds.env.physics.differentiable:
            raise ConfigError(
                f"the engine {worlds.env.physics.name!r} has no derivatives; leave requires_grad "
                "out, or use physics='native' or physics='mjx'"
            )
        super().__init__(device="cpu" if device is None else device, batch_size=shape)
        self.worlds = worlds = worlds if frame_skip == 1 else worlds.repeating(frame_skip)
        self.requires_grad = requires_grad
        self._renderer = WorldsRenderer(worlds, pixels_size) if from_pixels else None
        self._spaces = {} if pixels_only else parts_of(worlds.env.observation_space)
        self._programs = PackedWorlds(worlds, tuple(self._spaces), requires_grad)
        self._set_seed(seed)
        self._make_specs(pixels_size)

    def _make_specs(self, pixels_size: tuple[int, int]) -> None:
        batch, device, env = self.batch_size, self.device, self.worlds.env
        self.action_spec = _spec(env.action_space, batch, device)
        self.reward_spec = Unbounded((*batch, 1), device)
        flag = Binary(shape=(*batch, 1), dtype=torch.bool, device=device)
        flags = {name: flag.clone() for name in FLAGS}
        self.full_done_spec = Composite(flags, shape=batch)
        state = {WORLD: Unbounded((*batch, self._programs.packing.words), device, torch.int32)}
        if self.requires_grad:
            state[REALS] = Unbounded((*batch, self._programs.packing.num_reals), device)
        self.state_spec = Composite(state, shape=batch)
        observed = {name: _spec(space, batch, device) for name, space in self._spaces.items()}
        if self._renderer is not None:
            observed[PIXELS] = Bounded(0, 255, (*batch, *pixels_size, 3), device, torch.uint8)
        # TorchRL carries only observations on to the next step.
        state = {name: spec.clone() for name, spec in state.items()}
        self.observation_spec = Composite({**observed, **state}, shape=batch)

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed
        #: The present worlds and their observation, by name, for resets; None before the first.
        self._shown: dict[str, Array] | None = None
        #: The worlds whose new episode has begun, but has not been shown yet.
        self._waiting = np.zeros(self.worlds.num_worlds, bool)

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, set_state: bool = False
    ) -> TensorDictBase:
        rows = np.ones(self.worlds.num_worlds, bool)
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is not None:
            rows = self._mask(mask)
        drawn = rows & ~self._waiting
        if self._shown is None:
            self._shown = self._programs.start(self._keys())
        elif drawn.any() and not set_state:
            self._shown = self._programs.begin(self._shown[WORLD], drawn)
        if set_state and tensordict is not None:
            given = self._as_argument(self._flat(tensordict, WORLD))
            self._shown = self._programs.put(self._shown[WORLD], given, rows)
        self._waiting = self._waiting & ~rows
        shown = self._tensors(self._shown, None)
        no = torch.zeros((self.worlds.num_worlds, 1), dtype=torch.bool, device=self.device)
        return self._tensordict(shown | {name: no.clone() for name in FLAGS})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        mask = tensordict.get("_step", None)
        mask = None if mask is None else self._mask(mask)
        if self.requires_grad:
            inputs = (self._flat(tensordict, name) for name in (WORLD, REALS, "action"))
            values = _Step.apply(self, mask, *inputs)
            return self._tensordict(dict(zip(self._step_names, values, strict=True)))
        world, action = (self._flat(tensordict, name) for name in (WORLD, "action"))
        return self._tensordict(self._advance(world, None, action, mask))

    def _advance(
        self,
        world: torch.Tensor,
        reals: torch.Tensor | None,
        action: torch.Tensor,
        mask: NDArray | None,
    ) -> dict[str, torch.Tensor]:
        """One step, in one compiled program, of tensors with one axis `B`."""
        rows = (self.worlds.num_worlds,)
        checked = self.worlds.env.check_action(self._as_argument(action), rows)
        start = (self._as_argument(world), None if reals is None else self._as_argument(reals))
        given, begun = self._programs.advance(*start, checked, mask)
        self._shown = begun | {name: given[name] for name in (WORLD, REALS) if name in given}
        ended = np.array(given["done"])[:, 0]
        self._waiting = ended if mask is None else np.where(mask, ended, self._waiting)
        last = None
        if self._renderer is not None:
            last = LastStep(self._programs.unpack(start[0]), checked, ended)
        return self._tensors(given, last)

    @property
    def _step_names(self) -> tuple[str, ...]:
        """The names of a step's results, in the order of the outputs of `_Step`."""
        pixels = () if self._renderer is None else (PIXELS,)
        return (WORLD, REALS, "reward", *FLAGS, *self._spaces, *pixels)

    def _keys(self) -> Key:
        if self._seed is None:
            self._seed = int(torch.randint(2**31, ()))
        return seed_keys(range(self._seed, self._seed + self.worlds.num_worlds))

    def _as_argument(self, tensor: torch.Tensor) -> Any:
        """A tensor as an argument of a compiled program, with the same memory where possible.

        The program must end before the tensor changes, and return no part of its memory.
        """
        tensor = tensor.detach().contiguous()
        if tensor.is_floating_point():
            tensor = tensor.float()
        if "cpu" in (tensor.device.type, self.worlds.env.device.platform):
            return tensor.cpu().numpy()
        return jax.dlpack.from_dlpack(tensor)

    def _mask(self, mask: torch.Tensor) -> NDArray:
        """A mask of worlds, `(B,)` bool."""
        if mask.dtype is not torch.bool or mask.numel() != self.worlds.num_worlds:
            raise ConfigError(
                f"the mask has shape {list(mask.shape)} and dtype {mask.dtype}; it must be "
                f"{[*self.batch_size, 1]} and torch.bool"
            )
        return mask.reshape(-1).cpu().numpy().copy()

    def _flat(self, tensordict: TensorDictBase, name: str) -> torch.Tensor:
        """An entry with one axis `B` in place of the batch's axes."""
        value = tensordict.get(name, None)
        if value is None:
            raise ConfigError(
                f"the tensordict has no {name!r}; give one that reset or step returned, with an "
                "action"
            )
        return value.reshape(self.worlds.num_worlds, *value.shape[len(self.batch_size) :])

    def _tensors(
        self, arrays: Mapping[str, Array], last: LastStep | None
    ) -> dict[str, torch.Tensor]:
        """The results of a program as tensors, with pictures if there are any."""
        assert self._shown is not None
        jax.block_until_ready(arrays)
        tensors = {name: torch.from_dlpack(array) for name, array in arrays.items()}
        for name, array in arrays.items():
            if array is self._shown.get(name):  # the environment keeps it, so callers get a copy
                tensors[name] = tensors[name].clone()
        tensors = {name: _known(tensor).to(self.device) for name, tensor in tensors.items()}
        if self._renderer is not None:
            pictures = self._renderer.render(self._programs.unpack(self._shown[WORLD]), last)
            tensors[PIXELS] = torch.from_numpy(np.stack(pictures)).to(self.device)
        return tensors

    def _tensordict(self, flat: Mapping[str, torch.Tensor]) -> TensorDictBase:
        """Tensors with one axis `B` as a tensordict of the batch size."""
        batch = self.batch_size
        shaped = {name: value.reshape(*batch, *value.shape[1:]) for name, value in flat.items()}
        return TensorDict(shaped, batch_size=batch, device=self.device)


class WorldlineEnv(WorldlineWrapper):
    """A task by name as a TorchRL environment.

    Args:
        env_name: one of `available_envs`.
        batch_size: any shape; as many worlds as it has elements.
        physics: the engine, as in `worldline.Env`.
        episode_length: control steps after which an episode is truncated; 0 for no limit; None for
            the task's own.
        domain: draws a world's constants at the start of each episode, as in `Worlds`.
        options: further arguments of `WorldlineWrapper`, such as `device` and `seed`, and fields of
            the task's class.

    Raises:
        TaskError: there is no such task, or it has no such field.
        ConfigError: as in `WorldlineWrapper`.
    """

    def __init__(
        self,
        env_name: str,
        *,
        batch_size: Sequence[int] = (),
        physics: Engine = "native",
        episode_length: int | None = None,
        domain: DomainLike | None = None,
        **options: Any,
    ) -> None:
        known = inspect.signature(WorldlineWrapper.__init__).parameters
        config = {name: value for name, value in options.items() if name not in known}
        env = registry.make(env_name, physics, **config)
        super().__init__(
            Worlds(env, torch.Size(batch_size).numel(), episode_length, domain),
            batch_size=batch_size,
            **{name: value for name, value in options.items() if name in known},
        )


class _Step(torch.autograd.Function):  # type: ignore[misc]
    """A step as an operation of torch with a gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        env: WorldlineWrapper,
        mask: NDArray | None,
        world: torch.Tensor,
        reals: torch.Tensor,
        action: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.env, ctx.mask = env, mask
        ctx.save_for_backward(world, reals, action)
        given = env._advance(world, reals, action, mask)
        names, differentiable = env._step_names, env._programs.differentiable
        ctx.mark_non_differentiable(*(given[n] for n in names if n not in differentiable))
        return tuple(given[name] for name in names)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[Any, ...]:
        """None for `env`, `mask` and `world`; the gradients of `reals` and `action`."""
        pulled = _Pull.apply(ctx.env, ctx.mask, *ctx.saved_tensors, *cotangents)
        return (None, None, None, *pulled)


class _Pull(torch.autograd.Function):  # type: ignore[misc]
    """The gradient of a step as an operation of torch, whose own gradient is refused."""

    @staticmethod
    def forward(
        ctx: Any,
        env: WorldlineWrapper,
        mask: NDArray | None,
        world: torch.Tensor,
        reals: torch.Tensor,
        action: torch.Tensor,
        *cotangents: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        named = dict(zip(env._step_names, cotangents, strict=True))
        pulls = {name: env._as_argument(named[name]) for name in env._programs.differentiable}
        inputs = (env._as_argument(tensor) for tensor in (world, reals, action))
        pulled = jax.block_until_ready(env._programs.pull(*inputs, mask, pulls))
        return tuple(torch.from_dlpack(gradient).to(env.device) for gradient in pulled)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[Any, ...]:
        raise SecondDerivativeError(
            "a step has no second derivative here; leave create_graph out, or detach the gradient"
        )


def _spec(space: gymnasium.spaces.Box, batch: torch.Size, device: Any) -> Any:
    """The spec of a space; bounded if all its bounds are finite."""
    dtype = _known(torch.from_numpy(np.empty(0, space.dtype))).dtype
    shape = (*batch, *space.shape)
    if not space.is_bounded():
        return Unbounded(shape, device, dtype)
    low, high = (_known(torch.tensor(bound)).expand(shape) for bound in (space.low, space.high))
    return Bounded(low, high, shape, device, dtype)


def _known(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a dtype that torch computes with: int32 in place of uint16."""
    return tensor.int() if tensor.dtype is torch.uint16 else tensor
