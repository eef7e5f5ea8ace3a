"""Reading order is import order: a module imports only from the modules above it."""

import ast
from pathlib import Path

import pytest

import worldline

SOURCE = Path(worldline.__file__).parent

#: The order to read the library in. A new module goes below all it imports and above all that
#: import it; a package's own `__init__` stands where what it imports allows.
ORDER = [
    "worldline.bridges",
    "worldline.bridges.registration",
    "worldline",
    "worldline.errors",
    "worldline.files",
    "worldline.types",
    "worldline.threefry",
    "worldline.devices",
    "worldline.cluster",
    "worldline.mjlib",
    "worldline.warplib",
    "worldline.model",
    "worldline.variation.distributions",
    "worldline.variation.targets",
    "worldline.variation.consistency",
    "worldline.variation.domain",
    "worldline.variation.context",
    "worldline.variation.options",
    "worldline.variation.presets",
    "worldline.variation",
    "worldline.physics.base",
    "worldline.physics.differences",
    "worldline.physics.xla_ffi",
    "worldline.physics.host",
    "worldline.physics.gradient",
    "worldline.physics.native_constants",
    "worldline.physics.native_layout",
    "worldline.physics.native_rows",
    "worldline.physics.native_moves",
    "worldline.physics.native",
    "worldline.physics.accepted",
    "worldline.physics.mjx_ignored",
    "worldline.physics.mjx_source",
    "worldline.physics.mjx_rotation",
    "worldline.physics.mjx_solve",
    "worldline.physics.mjx_contact",
    "worldline.physics.mjx_step",
    "worldline.physics.mjx_constants",
    "worldline.physics.mjx",
    "worldline.physics.warp_model",
    "worldline.physics.warp_rows",
    "worldline.physics.warp",
    "worldline.physics.fake",
    "worldline.physics",
    "worldline.pixels",
    "worldline.pixels.camera",
    "worldline.pixels.stage",
    "worldline.pixels.painter",
    "worldline.pixels.opengl",
    "worldline.pixels.warp",
    "worldline.pixels.renderer",
    "worldline.pixels.cameras",
    "worldline.pixels.augment",
    "worldline.env",
    "worldline.env.task",
    "worldline.env.env",
    "worldline.env.worlds",
    "worldline.env.disturb",
    "worldline.env.check",
    "worldline.tasks",
    "worldline.tasks.reach",
    "worldline.tasks.rewards",
    "worldline.tasks.gym",
    "worldline.tasks.gym.base",
    "worldline.tasks.gym.pendulums",
    "worldline.tasks.gym.half_cheetah",
    "worldline.tasks.gym.swimmer",
    "worldline.tasks.gym.walkers",
    "worldline.tasks.gym.ant",
    "worldline.tasks.gym.arms",
    "worldline.tasks.gym.humanoids",
    "worldline.tasks.suite",
    "worldline.tasks.suite.base",
    "worldline.tasks.suite.contacts",
    "worldline.tasks.suite.pendulums",
    "worldline.tasks.suite.arms",
    "worldline.tasks.suite.hands",
    "worldline.tasks.suite.planar",
    "worldline.tasks.suite.swimmers",
    "worldline.tasks.suite.humanoid",
    "worldline.tasks.suite.manipulator",
    "worldline.tasks.suite.quadruped",
    "worldline.tasks.robot",
    "worldline.tasks.robot.quadruped",
    "worldline.tasks.robot.arm",
    "worldline.tasks.robot.pick_cube",
    "worldline.tasks.registry",
    "worldline.listing",
    "worldline.scaffold",
    "worldline.learn",
    "worldline.learn.nets",
    "worldline.learn.recurrent",
    "worldline.learn.vision",
    "worldline.learn.normalizer",
    "worldline.learn.policy",
    "worldline.learn.returns",
    "worldline.learn.places",
    "worldline.learn.shuffle",
    "worldline.learn.rollout",
    "worldline.learn.run",
    "worldline.learn.layout",
    "worldline.learn.successors",
    "worldline.learn.curriculum",
    "worldline.learn.population",
    "worldline.learn.images",
    "worldline.learn.ppo_config",
    "worldline.learn.ppo_networks",
    "worldline.learn.ppo_state",
    "worldline.learn.ppo_samples",
    "worldline.learn.ppo",
    "worldline.learn.replay",
    "worldline.learn.sac_config",
    "worldline.learn.sac_networks",
    "worldline.learn.sac_state",
    "worldline.learn.sac_losses",
    "worldline.learn.sac",
    "worldline.learn.adjoints",
    "worldline.learn.shac",
    "worldline.learn.algorithms",
    "worldline.policy_file",
    "worldline.onnx_file",
    "worldline.checkpoint",
    "worldline.report.camera",
    "worldline.report.rays",
    "worldline.report.draw",
    "worldline.report.video",
    "worldline.report.curves",
    "worldline.report.context_map",
    "worldline.report.progress",
    "worldline.report.run_folder",
    "worldline.report.inputs",
    "worldline.report",
    "worldline.bridges.frames",
    "worldline.bridges.seeds",
    "worldline.bridges.packing",
    "worldline.bridges.inline",
    "worldline.bridges.held_worlds",
    "worldline.bridges.vector",
    "worldline.bridges.external",
    "worldline.bridges.gymnasium",
    "worldline.bridges.dm_env",
    "worldline.bridges.sb3",
    "worldline.bridges.packed_worlds",
    "worldline.bridges.torchrl",
    "worldline.records",
    "worldline.trackers",
    "worldline.run_config",
    "worldline.interrupt",
    "worldline.sweep",
    "worldline.train",
    "worldline.arguments",
    "worldline.compilation_cache",
    "worldline.cli",
]


def module_name(path: Path) -> str:
    parts = ["worldline", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def for_types_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(node: ast.AST, module: str) -> set[str]:
    """The modules of the library that a module imports, in a function or at its top."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if for_types_alone(child):
            continue
        if isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module} imports by a relative name; use the whole one"
            parts = {f"{child.module}.{alias.name}" for alias in child.names}
            submodules = parts & FILES.keys()
            found |= submodules or {child.module or ""}
        else:
            found |= imports(child, module)
    return {name for name in found if name.split(".")[0] == "worldline"}


def test_every_module_has_its_place():
    for name in FILES:
        assert name in ORDER, f"{name} has no place yet: put it into ORDER of tests/test_imports.py"
    for name in ORDER:
        assert name in FILES, f"{name} is gone: take it out of ORDER of tests/test_imports.py"
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_from_above_alone(module):
    above = ORDER[: ORDER.index(module)]
    for imported in imports(ast.parse(FILES[module].read_text()), module):
        assert imported in above, f"{module} imports {imported}, which is not above it in ORDER"
