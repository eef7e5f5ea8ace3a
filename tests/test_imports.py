"""Reading order is import order: a room imports from the rooms below it, and nothing in circles."""

import ast
from pathlib import Path

import pytest

import worldline

SOURCE = Path(worldline.__file__).parent

#: The rooms in the order to read them. A room is a package. "ground" are modules beside packages,
#: "facade" is `import worldline`, which gives the public names.
ROOMS = [
    "ground",
    "robots",
    "parallel",
    "host",
    "variation",
    "physics",
    "rendering",
    "env",
    "tasks",
    "learn",
    "export",
    "report",
    "identify",
    "train",
    "bridges",
    "watch",
    "facade",
    "cli",
]

#: Modules beside packages that all may import.
MOST_ON_THE_GROUND = 10


def module_name(path: Path) -> str:
    parts = ["worldline", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def room(module: str) -> str:
    if module == "worldline":
        return "facade"
    part = module.split(".")[1]
    return part if (SOURCE / part).is_dir() else "ground"


def for_types_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(node: ast.AST, module: str, *, late: bool = True) -> set[str]:
    """The modules of the library that a module imports at its top, and if `late` in functions."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if for_types_alone(child):
            continue
        if not late and isinstance(child, ast.FunctionDef):
            continue
        if isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module} imports by a relative name; use the whole one"
            parts = {f"{child.module}.{alias.name}" for alias in child.names}
            submodules = parts & FILES.keys()
            found |= submodules or {child.module or ""}
        else:
            found |= imports(child, module, late=late)
    return {name for name in found if name.split(".")[0] == "worldline"}


TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}


def test_every_room_has_its_place():
    assert {room(name) for name in FILES} == set(ROOMS)


def test_the_ground_floor_is_small():
    ground = [name for name in FILES if room(name) == "ground"]
    assert len(ground) <= MOST_ON_THE_GROUND, ground


@pytest.mark.whole
@pytest.mark.parametrize("module", FILES)
def test_a_room_imports_from_below_alone(module):
    own = ROOMS.index(room(module))
    for imported in imports(TREES[module], module):
        assert imported in FILES, f"{module} imports {imported}, which is not there"
        assert ROOMS.index(room(imported)) <= own, f"{module} imports {imported}, a room above"


def test_no_module_imports_itself_by_others():
    graph = {name: imports(TREES[name], name, late=False) for name in FILES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " imports ".join((*path[path.index(name) :], name))
        if name not in done:
            for imported in sorted(graph[name]):
                visit(imported, (*path, name))
            done.add(name)

    for name in FILES:
        visit(name, ())
