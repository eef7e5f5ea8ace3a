"""The ctypes structures lie in memory as the installed C headers say."""

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path

import jax
import mujoco
import pytest

from worldline import mujoco_c
from worldline.host import ffi

#: Structure: its name in C and its members there, in order; "..." where C has more of them.
STRUCTS = {
    mujoco_c._BatchConfig: "mjBatchConfig nthread persistent",
    ffi.Span: "XLA_FFI_ByteSpan ptr len",
    ffi.Sized: "XLA_FFI_Buffer struct_size extension_start ...",
    ffi.Buffer: "XLA_FFI_Buffer struct_size extension_start dtype data rank dims",
    ffi.Attributes: "XLA_FFI_Attrs struct_size extension_start size types names attrs",
    ffi.Version: "XLA_FFI_Api_Version struct_size extension_start major_version minor_version",
    ffi.ErrorArguments: "XLA_FFI_Error_Create_Args struct_size extension_start message errc",
    ffi.TypeId: "XLA_FFI_TypeId type_id",
    ffi.TypeInfo: "XLA_FFI_TypeInfo struct_size extension_start deleter",
    ffi.Api: "XLA_FFI_Api struct_size extension_start api_version internal_api"
    " XLA_FFI_Error_Create XLA_FFI_Error_GetMessage XLA_FFI_State_Set XLA_FFI_State_Get ...",
    ffi.Metadata: "XLA_FFI_Metadata struct_size api_version traits state_type_id",
    ffi.Extension: "XLA_FFI_Metadata_Extension extension_base.struct_size extension_base.type"
    " extension_base.next metadata",
    ffi.Frame: "XLA_FFI_CallFrame struct_size extension_start api ctx stage args rets attrs ...",
}
#: Structures that C has twice under two names.
TWICE = [
    (ffi.Buffers, "XLA_FFI_Args struct_size extension_start size types args"),
    (ffi.Buffers, "XLA_FFI_Rets struct_size extension_start size types rets"),
    (
        ffi.StateArguments,
        "XLA_FFI_State_Set_Args struct_size extension_start ctx stage type_id state",
    ),
    (
        ffi.StateArguments,
        "XLA_FFI_State_Get_Args struct_size extension_start ctx stage type_id state",
    ),
]
ALL = [*STRUCTS.items(), *TWICE]


@pytest.fixture(scope="module")
def in_c(tmp_path_factory) -> list[list[int]]:
    """The offsets of each structure's members, and its size, by the C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("c")
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    renamed = "XLA_FFI_Error_GetDetails" in header.read_text()  # in newer versions of jaxlib
    lines = []
    for _, text in ALL:
        now = text.replace("Error_GetMessage", "Error_GetDetails") if renamed else text
        name, *members = now.replace(" ...", "").split()
        terms = [f"offsetof({name}, {member})" for member in members] + [f"sizeof({name})"]
        lines.append(f'printf("{"%zu " * len(terms)}\\n", {", ".join(terms)});')
    source = folder / "structs.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "mujoco/mjbatch.h"\n'
        '#include "xla/ffi/api/c_api.h"\nint main(void) {\n' + "\n".join(lines) + "\n}\n"
    )
    headers = [jax.ffi.include_dir(), str(Path(mujoco.__file__).parent / "include")]
    includes = [f"-I{header}" for header in headers]
    program = folder / "structs"
    subprocess.run([compiler, *includes, source, "-o", program], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [[int(number) for number in line.split()] for line in printed.splitlines()]


@pytest.mark.parametrize("number", range(len(ALL)), ids=[text.split()[0] for _, text in ALL])
def test_a_structure_lies_as_in_its_header(number, in_c):
    (structure, text), (*offsets, size) = ALL[number], in_c[number]
    fields = [vars(base).get("_fields_", ()) for base in reversed(structure.__mro__)]
    ours = [getattr(structure, name).offset for name, *_ in itertools.chain(*fields)]
    assert ours == offsets
    if not text.endswith("..."):
        assert ctypes.sizeof(structure) == size


def test_every_structure_is_listed():
    modules = vars(ffi).values(), vars(mujoco_c).values()
    structures = {x for of in modules for x in of if isinstance(x, type(ctypes.Structure))}
    defined = {x for x in structures if x.__module__.startswith("worldline.")}
    assert defined == {structure for structure, _ in ALL}
