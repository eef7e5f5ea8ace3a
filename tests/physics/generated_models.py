"""Small models that a seed makes: bodies, joints, tendons, actuators and options of every kind.

A model has features, each drawn from random numbers of its own: without one of them, the others
stay as they are. So a failure is made small by leaving features out, which Hypothesis does too.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
from generated_scene import Joint, Scene, between, features, pick, text

_SHAPES = ("sphere", "capsule", "cylinder", "box", "ellipsoid")
_OFF = (
    "constraint", "equality", "frictionloss", "limit", "contact", "spring", "damper", "gravity",
    "clampctrl", "warmstart", "filterparent", "actuation", "refsafe", "sensor", "midphase",
    "eulerdamp", "autoreset", "nativeccd", "island", "multiccd",
)  # fmt: skip
_ON = ("energy", "fwdinv", "invdiscrete", "diagexact", "sleep", "speculative")


def mjcf(seed: int, having: frozenset[str] | None = None) -> str:
    """The model that a seed makes; with other features, another."""
    scene = Scene(seed, features(seed) if having is None else having)
    for part in (
        _options, _bodies, _contacts, _tendons, _equalities, _actuators, _sensors, _key
    ):  # fmt: skip
        part(scene)
    ET.indent(scene.root)
    return ET.tostring(scene.root, "unicode")


def _options(scene: Scene) -> None:
    option, random = ET.SubElement(scene.root, "option", timestep="0.003"), scene.random("option")
    choices = {
        "timestep": ("timestep", ("0.001", "0.002", "0.005")),
        "integrator": ("integrator", ("implicitfast", "implicitfast", "RK4")),
        "implicit": ("integrator", ("implicit",)),
        "solver": ("solver", ("PGS", "CG")),
        "cone": ("cone", ("elliptic",)),
        "impratio": ("impratio", ("2", "5")),
        "jacobian": ("jacobian", ("sparse", "dense")),
        "noslip": ("noslip_iterations", ("3",)),
        "gravity": ("gravity", ("0 0 0", "1 -2 -9")),
    }
    for feature, (attribute, values) in choices.items():
        if feature in scene.having:
            option.set(attribute, pick(scene.random(feature), values))
    if "fluid" in scene.having:
        random = scene.random("fluid")
        option.set("density", pick(random, ("0", "30", "300")))
        option.set("viscosity", pick(random, ("0", "0.1", "1")))
        option.set("wind", pick(random, ("0 0 0", "1 0.5 -0.5")))
    flags = {}
    if "flag" in scene.having:
        random = scene.random("flag")
        flags |= dict.fromkeys(random.choice(_OFF, random.integers(1, 4)).tolist(), "disable")
    if "enable" in scene.having:
        flags[pick(scene.random("enable"), _ON)] = "enable"
    if "override" in scene.having:
        flags["override"] = "enable"
        option.set("o_solref", "0.03 1.1")
        option.set("o_margin", "0.002")
        option.set("o_friction", "0.4 0.4 0.01 0.001 0.001")
    if flags:
        ET.SubElement(option, "flag", flags)


def _bodies(scene: Scene) -> None:
    random = scene.random("bodies")
    kinds = ["hinge", "hinge"]
    optional = ("slide", "ball", "free", "two joints", "mocap", "fixed body")
    kinds += [kind for kind in optional if kind in scene.having]
    elements = {"world": scene.world}
    if "floor" in scene.having:
        _floor(scene)
    ET.SubElement(scene.world, "site", name="world", pos=between(random, -0.5, 0.8, 3))
    for number in range(5):
        name = f"b{number}"
        kind = pick(random, kinds)
        parents = ["world", *scene.bodies, *scene.bodies[-1:] * 2]
        parent = pick(random, parents)
        place = random.uniform((-0.4, -0.4, 0.05), (0.4, 0.4, 0.5))
        arm = random.normal(0, 1, 3)
        if number and ("tree" not in scene.having or random.random() < 0.25):
            continue
        if kind in ("free", "mocap"):
            parent = "world"
        if not scene.bodies and kind in ("mocap", "fixed body"):
            kind = "hinge"
        if parent in scene.mocap:
            parent = "world"
        pos = place if parent == "world" else 0.25 * arm / np.linalg.norm(arm)
        body = ET.SubElement(elements[parent], "body", name=name, pos=text(pos))
        if random.random() < 0.4:
            body.set("quat", between(random, -1, 1, 4))
        elements[name] = body
        scene.parents[name] = parent
        _fill(scene, body, name, kind)


def _floor(scene: Scene) -> None:
    floor = ET.SubElement(scene.world, "geom", name="floor", type="plane", size="3 3 .1")
    floor.set("conaffinity", "3")
    floor.set("contype", "0")
    if "condim" in scene.having:
        floor.set("condim", pick(scene.random("condim"), ("1", "3", "4", "6")))
    scene.geoms["floor"] = "plane"
    _geom_numbers(scene, floor, "floor")


def _fill(scene: Scene, body: ET.Element, name: str, kind: str) -> None:
    """Joints, geoms and a site of a body."""
    if kind == "mocap":
        body.set("mocap", "true")
        scene.mocap.append(name)
    elif kind == "free":
        ET.SubElement(body, "freejoint", name=f"{name} free")
        scene.free.append(name)
        scene.joints.append(Joint(f"{name} free", "free", name))
    elif kind == "two joints":
        random = scene.random(f"{name} joints")
        for number in range(2):
            kind = pick(random, ("hinge", "slide"))
            _joint(scene, body, f"{name} {number}", kind, ("1 0 0", "0 1 0.5")[number])
    elif kind != "fixed body":
        _joint(scene, body, f"{name} {kind}", kind)
    scene.bodies.append(name)
    random = scene.random(f"{name} content")
    if "gravcomp" in scene.having and random.random() < 0.5:
        body.set("gravcomp", between(random, 0.2, 1.2))
    if "inertial" in scene.having and random.random() < 0.5:
        moments = random.uniform(0.01, 0.018, 3)
        inertial = ET.SubElement(body, "inertial", pos=between(random, -0.05, 0.05, 3))
        inertial.set("mass", between(random, 0.3, 2))
        inertial.set("diaginertia", text(moments))
        inertial.set("quat", between(random, -1, 1, 4))
    for number in range(2 if "second geom" in scene.having and random.random() < 0.5 else 1):
        _geom(scene, body, f"{name} g{number}")
    ET.SubElement(body, "site", name=name, pos=between(random, -0.2, 0.2, 3))
    for child in list(body):  # MuJoCo reads joints first; so does a reader
        if child.tag == "body":
            body.remove(child)
            body.append(child)


def _joint(scene: Scene, body: ET.Element, name: str, kind: str, axis: str = "") -> None:
    random = scene.random(name)
    joint = ET.SubElement(body, "joint", name=name, type=kind)
    if kind != "ball":
        axes = ("1 0 0", "0 1 0", "0 0 1", between(random, -1, 1, 3))
        joint.set("axis", axis or pick(random, axes))
    if kind != "slide" and random.random() < 0.4:
        joint.set("pos", between(random, -0.1, 0.1, 3))
    if "hinge dynamics" in scene.having:
        for attribute, high in (("damping", 0.5), ("armature", 0.05)):
            if random.random() < 0.6:
                joint.set(attribute, between(random, 0.01, high))
    if "frictionloss" in scene.having and random.random() < 0.6:
        joint.set("frictionloss", between(random, 0.02, 0.5))
    if "springs" in scene.having and random.random() < 0.6:
        joint.set("stiffness", between(random, 0.5, 9))
        if kind != "ball":
            joint.set("springref", between(random, -0.2, 0.2))
            joint.set("ref", between(random, -0.2, 0.2))
    if "joint limits" in scene.having and random.random() < 0.6:
        low = 0.0 if kind == "ball" else -random.uniform(0.05, 0.3)
        joint.set("range", text(low, random.uniform(0.05, 0.3)))
        joint.set("margin", pick(random, ("0", "0", "0.01")))
    _rare_of_joint(scene, joint, kind)
    scene.joints.append(Joint(name, kind, body.get("name", "")))


def _rare_of_joint(scene: Scene, joint: ET.Element, kind: str) -> None:
    random = scene.random(f"{joint.get('name')}, what is rare")
    if "joint force limits" in scene.having and kind != "ball":
        joint.set("actuatorfrcrange", text(-random.uniform(0.1, 1), random.uniform(0.1, 1)))
        joint.set("actuatorgravcomp", pick(random, ("true", "false")))
    if "solver numbers" in scene.having:
        joint.set("solreflimit", pick(random, ("0.03 1.1", "-300 -9")))
        joint.set("solreffriction", "0.04 0.9")
        joint.set("solimpfriction", "0.8 0.9 0.01 0.5 2")
    if "polynomials" in scene.having:
        joint.set("damping", between(random, 0.01, 0.1, 3))
        joint.set("stiffness", between(random, 0.5, 2, 3))
    if "springs that yield" in scene.having and kind != "ball":
        joint.set("springyield", between(random, 0.02, 0.1))
        joint.set("stiffness", "3")


def _geom(scene: Scene, body: ET.Element, name: str) -> None:
    random = scene.random(name)
    kinds = _SHAPES if "shapes" in scene.having else _SHAPES[:2]
    kind = pick(random, kinds)
    size = random.uniform(0.04, 0.12, {"sphere": 1, "capsule": 2, "cylinder": 2}.get(kind, 3))
    geom = ET.SubElement(body, "geom", name=name, type=kind, size=text(size))
    geom.set("pos", between(random, -0.1, 0.1, 3))
    if random.random() < 0.5:
        geom.set("quat", between(random, -1, 1, 4))
    geom.set("mass", between(random, 0.2, 2))
    geom.set("contype", "1" if "floor" in scene.having else "0")
    geom.set("conaffinity", "0")
    alike = kind in _SHAPES[:2] or "convex contact" in scene.having
    if "self contact" in scene.having and alike:
        geom.set("conaffinity", "2")
        geom.set("contype", "3" if "floor" in scene.having else "2")
    if "condim" in scene.having and random.random() < 0.5:
        geom.set("condim", pick(random, ("1", "3", "4", "6")))
    if "fluid shape" in scene.having:
        geom.set("fluidshape", "ellipsoid")
    scene.geoms[name] = kind
    _geom_numbers(scene, geom, name)


def _geom_numbers(scene: Scene, geom: ET.Element, name: str) -> None:
    random = scene.random(f"{name}, numbers")
    if "geom numbers" in scene.having and random.random() < 0.7:
        geom.set("friction", text(random.uniform((0.2, 0.002, 0.0001), (1.5, 0.02, 0.01))))
        geom.set("solref", pick(random, ("0.02 1", "0.03 1.2", "-400 -20")))
        geom.set("solimp", pick(random, ("0.9 0.95 0.001", "0.7 0.9 0.005 0.4 3")))
        geom.set("margin", pick(random, ("0", "0.01")))
        geom.set("gap", pick(random, ("0", "0.004")))
        geom.set("solmix", between(random, 0.5, 2))
        geom.set("priority", pick(random, ("0", "0", "1")))
    if "sticky" in scene.having and random.random() < 0.7:
        geom.set("adhesion", pick(random, ("0", "2")))
        geom.set("surfacevel", pick(random, ("0 0 0", "0.2 0.1 0")))


def _contacts(scene: Scene) -> None:
    if "pair" in scene.having and len(scene.geoms) > 1:
        random = scene.random("pair")
        first, second = random.choice(list(scene.geoms), 2, replace=False).tolist()
        pair = ET.SubElement(scene.section("contact"), "pair", geom1=first, geom2=second)
        pair.set("condim", pick(random, ("1", "3", "4", "6")))
        if "pair numbers" in scene.having:
            pair.set("friction", "0.5 0.4 0.01 0.001 0.002")
            pair.set("solreffriction", "0.03 1")
            pair.set("margin", "0.005")
    if "exclude" in scene.having and len(scene.bodies) > 1:
        first, second = scene.random("exclude").choice(scene.bodies, 2, replace=False).tolist()
        ET.SubElement(scene.section("contact"), "exclude", body1=first, body2=second)


def _tendons(scene: Scene) -> None:
    random = scene.random("tendon")
    if "fixed tendon" in scene.having and scene.scalars():
        fixed = _tendon(scene, "fixed")
        for joint in dict.fromkeys(random.choice(scene.scalars(), 2).tolist()):
            coefficient = between(random, 0.5, 1.5)
            ET.SubElement(fixed, "joint", joint=joint, coef=coefficient)
    for name in ("spatial tendon", "tendon equality"):  # a second one to couple
        if name in scene.having:
            path = _tendon(scene, "spatial")
            body = pick(scene.random(name), [b for b in scene.bodies if b not in scene.mocap])
            others = [site for site in ("world", *scene.bodies) if site != body]
            ET.SubElement(path, "site", site=body)
            round_ = [geom for geom, kind in scene.geoms.items() if kind in ("sphere", "cylinder")]
            if "wrapping" in scene.having and round_:
                path.attrib.pop("armature", None)  # MuJoCo refuses the two together
                ET.SubElement(path, "geom", geom=pick(scene.random("wrapping"), round_))
            ET.SubElement(path, "site", site=pick(random, others))
            if "pulley" in scene.having:
                ET.SubElement(path, "pulley", divisor="2")
                ET.SubElement(path, "site", site=pick(random, others))
                ET.SubElement(path, "site", site=body)


def _tendon(scene: Scene, kind: str) -> ET.Element:
    name = f"t{len(scene.tendons)}"
    random = scene.random(name)
    tendon = ET.SubElement(scene.section("tendon"), kind, name=name)
    scene.tendons.append(name)
    if "tendon dynamics" in scene.having:
        for attribute, low, high in (
            ("damping", 0.05, 1), ("stiffness", 1, 20), ("frictionloss", 0.05, 0.5),
            ("armature", 0.01, 0.1),
        ):  # fmt: skip
            if random.random() < 0.5:
                tendon.set(attribute, between(random, low, high))
        if random.random() < 0.3:
            tendon.set("springlength", "0.1 0.3")
    if "tendon limits" in scene.having:
        tendon.set("range", text(-0.1 if kind == "fixed" else 0.1, random.uniform(0.15, 0.6)))
        tendon.set("margin", pick(random, ("0", "0.01")))
    if "joint force limits" in scene.having:
        tendon.set("actuatorfrcrange", "-1 0.5")
    if "polynomials" in scene.having:
        tendon.set("damping", "0.1 0.05 0.02")
        tendon.set("stiffness", "1 2 3")
    if "springs that yield" in scene.having:
        tendon.set("stiffness", "3")
        tendon.set("springyield", "0.05")
    return tendon


def _equalities(scene: Scene) -> None:
    random, moving = scene.random("equality"), [b for b in scene.bodies if b not in scene.mocap]
    of_bodies = [kind for kind in ("connect", "weld") if kind in scene.having]
    for kind in of_bodies:
        first = pick(random, moving)
        others = [body for body in ("world", *scene.bodies) if body != first]
        second = pick(random, [*scene.mocap, *scene.mocap, *others])
        made = ET.SubElement(scene.section("equality"), kind, body1=first, anchor=".05 0 .1")
        if second != "world":
            made.set("body2", second)
        if kind == "weld":
            made.set("torquescale", pick(random, ("1", "0.5")))
    if "joint equality" in scene.having and scene.scalars():
        joints = list(dict.fromkeys(random.choice(scene.scalars(), 2).tolist()))
        made = ET.SubElement(scene.section("equality"), "joint", joint1=joints[0])
        made.set("polycoef", pick(random, ("0 1 0 0 0", "0.05 0.5 0.1 0 0")))
        if len(joints) > 1:
            made.set("joint2", joints[1])
    if "tendon equality" in scene.having and scene.tendons:
        made = ET.SubElement(scene.section("equality"), "tendon", tendon1=scene.tendons[0])
        made.set("polycoef", "0 0.5 0 0 0")
        if len(scene.tendons) > 1:
            made.set("tendon2", scene.tendons[1])
    for made in scene.section("equality") if scene.root.find("equality") is not None else ():
        if "solver numbers" in scene.having:
            made.set("solref", "0.03 1.1")
            made.set("solimp", "0.8 0.9 0.002 0.5 2")
        if "inactive" in scene.having:
            made.set("active", "false")


#: Actuators by feature: the element, and attributes beside what they move.
_ACTUATORS: dict[str, tuple[str, dict[str, str]]] = {
    "motor": ("motor", {"gear": "2"}),
    "position": ("position", {"kp": "5", "kv": "0.3"}),
    "velocity": ("velocity", {"kv": "0.8"}),
    "intvelocity": ("intvelocity", {"kp": "4", "kv": "0.1", "actrange": "-0.5 0.5"}),
    "damper": ("damper", {"kv": "2", "ctrlrange": "0 1"}),
    "cylinder": ("cylinder", {"timeconst": "0.05", "area": "2", "bias": "-0.1 -0.2 -0.1"}),
    "general": (
        "general",
        {"gainprm": "2", "biastype": "affine", "biasprm": "0.1 -1 -0.2"},
    ),
    "activation": ("general", {"gainprm": "3", "dynprm": "0.06", "gaintype": "affine"}),
    "muscle": ("muscle", {"force": "10", "lengthrange": "-0.5 0.7"}),
    "tendon motor": ("motor", {"gear": "1.5"}),
    "site motor": ("motor", {"gear": "1 0.5 2 0.1 0 0.1"}),
    "refsite motor": ("position", {"gear": "1 0 1 0 0.3 0", "kp": "3"}),
    "crank": ("motor", {"cranklength": "0.6", "gear": "3"}),
    "adhesion": ("adhesion", {"gain": "5", "ctrlrange": "0 1"}),
    "pid": ("pid", {"kp": "4", "ki": "2", "kv": "0.1"}),
    "dcmotor": ("dcmotor", {"motorconst": "0.1", "resistance": "2"}),
    "orientation": ("orientation", {"kp": "2", "kv": "0.1"}),
    "delay": ("motor", {"delay": "0.01", "nsample": "4"}),
}


def _actuators(scene: Scene) -> None:
    for feature, (tag, attributes) in _ACTUATORS.items():
        if feature not in scene.having:
            continue
        random = scene.random(feature)
        target = _transmission(scene, feature, random)
        if not target:
            continue
        made = ET.SubElement(scene.section("actuator"), tag, {**attributes, **target})
        if feature == "activation":
            made.set("dyntype", pick(random, ("integrator", "filter", "filterexact")))
            made.set("actrange", "-0.6 0.6")
            if "actearly" in scene.having:
                made.set("actearly", "true")
        limited = "actuator limits" in scene.having and random.random() < 0.7
        if limited and "ctrlrange" not in attributes:
            made.set("ctrlrange", "-0.4 0.5")
        if limited and tag not in ("dcmotor",):
            made.set("forcerange", "0 0.8" if tag == "orientation" else "-1 0.8")
        dynamic = "actuator dynamics" in scene.having and tag not in ("adhesion", "orientation")
        wrapped = scene.root.find("tendon/spatial/geom") is not None and "tendon" in target
        if dynamic and not wrapped and not set(target) & {"site", "cranksite"}:
            made.set("damping", "0.2")
            made.set("armature", "0.03")


def _transmission(scene: Scene, feature: str, random: np.random.Generator) -> dict[str, str]:
    """What an actuator moves; nothing where the model has none of it."""
    moving = [b for b in scene.bodies if b not in scene.mocap]
    site = pick(random, moving)
    if feature == "tendon motor":
        return {"tendon": pick(random, scene.tendons)} if scene.tendons else {}
    if feature == "site motor":
        return {"site": site}
    if feature == "refsite motor":
        return {"site": site, "refsite": "world"}
    if feature == "crank":
        return {"cranksite": site, "slidersite": "world"}
    if feature == "adhesion":
        return {"body": site}
    balls = [joint.name for joint in scene.joints if joint.kind == "ball"]
    if feature == "orientation":
        return {"joint": pick(random, balls)} if balls else {}
    if feature == "motor" and balls and random.random() < 0.5:
        return {pick(random, ("joint", "jointinparent")): balls[0], "gear": "1 0.5 -1"}
    return {"joint": pick(random, scene.scalars())} if scene.scalars() else {}


def _sensors(scene: Scene) -> None:
    if "sensors" in scene.having:
        section = scene.section("sensor")
        ET.SubElement(section, "framelinvel", objtype="body", objname=scene.bodies[-1])
        ET.SubElement(section, "accelerometer", site=scene.bodies[0])
        ET.SubElement(section, "touch", site=scene.bodies[0])


def _key(scene: Scene) -> None:
    if "key" in scene.having:
        ET.SubElement(scene.section("keyframe"), "key", name="start", time="0.5")
