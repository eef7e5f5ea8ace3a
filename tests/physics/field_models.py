"""Small models that between them hold every constant on which MuJoCo's dynamics depend.

`MODELS` are MJCF by name. In `bare` ones most constants are zero, in others few: engines leave out
what a model does without, and must not where it varies.
"""

import mujoco

_PASSING = 'contype="0" conaffinity="0"'


def _mjcf(world: str, rest: str = "", option: str = "") -> str:
    return (
        f'<mujoco><compiler angle="radian"/><option timestep="0.004" {option}/>'
        f"<worldbody>{world}</worldbody>{rest}</mujoco>"
    )


def _link(name: str, pos: str, joint: str = "", inner: str = "", axis: str = "0 1 0") -> str:
    """A body with a hinge and a capsule that touches nothing."""
    return (
        f'<body name="{name}" pos="{pos}"><joint name="{name}" axis="{axis}" {joint}/>'
        f'<geom name="{name}" type="capsule" size=".03" fromto="0 0 0 .4 0 0" {_PASSING}/>'
        f'<site name="{name}" pos=".4 0 .05"/>{inner}</body>'
    )


_CHAIN = _link("a", "0 0 1", "", _link("b", ".4 0 0", "", _link("c", ".4 0 0", axis="1 0 1")))
_STUCK = _link("b", ".4 0 0", 'frictionloss="9"')
_MOTORS = '<actuator><motor joint="a"/><motor joint="b"/></actuator>'
_RICH = 'damping=".2" stiffness="1" armature=".02" frictionloss=".05" ref=".1" springref=".2"'
_LIMITED = 'limited="true" range="-.15 .1" margin=".02"'
_TWO = _link("a", "0 0 1") + _link("b", "0 .4 1.2", axis="1 1 0")
_FLOOR = '<geom name="floor" type="plane" size="3 3 .1"/>'


def _ball(name: str, pos: str, geom: str) -> str:
    return f'<body name="{name}" pos="{pos}"><freejoint/><geom name="{name}" {geom}/></body>'


_SPHERE = _ball("sphere", "0 0 .095", 'type="sphere" size=".1"')
_CAPSULE = _ball("capsule", "1 0 .046", 'type="capsule" size=".05 .2" euler="0 1.57 0"')
_POLE = _link("a", "0 0 1", 'damping=".1"')
_FOUR_BAR = (
    '<body name="crank" pos="0 0 1"><joint name="a" axis="0 1 0" damping=".01"/>'
    f'<geom type="capsule" size=".02" fromto="0 0 0 0 0 .2" mass=".3" {_PASSING}/>'
    '<body name="rod" pos="0 0 .2"><joint name="b" axis="0 1 0"/>'
    f'<geom type="capsule" size=".02" fromto="0 0 0 .6 0 .1" mass=".3" {_PASSING}/></body></body>'
    '<body name="rocker" pos=".6 0 1"><joint name="c" axis="0 1 0"/>'
    f'<geom type="capsule" size=".02" fromto="0 0 0 0 0 .3" mass=".3" {_PASSING}/></body>'
)
_DRONE = (
    '<body name="drone" pos="0 0 1"><freejoint/><inertial pos=".01 0 .02" mass="1" '
    'diaginertia=".01 .02 .025"/><site name="rotor" pos=".1 .1 0"/>'
    f'<geom name="drone" type="box" size=".1 .1 .02" {_PASSING}/></body>'
)

MODELS = {
    "bare chain": _mjcf(_CHAIN, _MOTORS),
    "rich chain": _mjcf(
        _link("a", "0 0 1", _RICH, _link("b", ".4 0 0", _RICH + _LIMITED, _link("c", ".4 0 0"))),
        '<actuator><position joint="a" kp="5" kv=".5" ctrlrange="-1 .15" forcerange="-2 1"/>'
        '<general joint="b" dyntype="filterexact" dynprm=".05" gainprm="2" actlimited="true" '
        'actrange="-.2 .2"/><intvelocity joint="c" kp="2" kv=".1" actrange="-1 1"/></actuator>',
    ),
    "implicitfast chain": _mjcf(
        _link("a", "0 0 1", 'damping=".1"', _link("b", ".4 0 0")),
        '<actuator><velocity joint="a" kv="2"/><motor joint="b" forcerange="-.1 .1"/></actuator>',
        'integrator="implicitfast"',
    ),
    "ball joints, RK4": _mjcf(
        f'<body pos="0 0 1"><joint type="ball" damping=".01"/><geom type="box" size=".1 .06 .03" '
        f'pos=".2 0 0" {_PASSING}/><body pos=".4 0 0"><joint type="ball" limited="true" '
        f'range="0 .1"/><geom type="box" size=".1 .02 .03" pos=".1 0 0" {_PASSING}/></body></body>',
        option='integrator="RK4"',
    ),
    "slides": _mjcf(
        '<body name="cart" pos="0 0 1"><joint name="a" type="slide" axis="1 0 0" limited="true" '
        f'range="-.1 .02"/><geom type="box" size=".1 .1 .1" {_PASSING}/>'
        + _link("b", "0 0 .1", 'armature=".01"')
        + "</body>",
        _MOTORS,
    ),
    "drone": _mjcf(
        _DRONE,
        '<actuator><motor site="rotor" gear="0 0 9 0 0 .1"/></actuator>',
        'integrator="implicitfast"',
    ),
    "contacts": _mjcf(_FLOOR + _SPHERE + _CAPSULE),
    "elliptic contacts": _mjcf(
        '<geom type="plane" size="3 3 .1" condim="4" friction=".6 .01 .001"/>'
        + _ball("sphere", "0 0 .095", 'type="sphere" size=".1" condim="4"')
        + _ball("other", ".15 0 .22", 'type="sphere" size=".1" condim="4" solref=".03 1.2"'),
        option='cone="elliptic" impratio="2"',
    ),
    "pairs": _mjcf(
        f'<geom name="floor" type="plane" size="3 3 .1" {_PASSING}/>'
        + _ball("sphere", "0 0 .095", f'type="sphere" size=".1" {_PASSING}'),
        '<contact><pair geom1="floor" geom2="sphere" condim="3"/></contact>',
    ),
    "four bars": _mjcf(
        _FOUR_BAR,
        '<equality><connect body1="rod" body2="rocker" anchor=".6 0 .1"/></equality>'
        '<actuator><motor joint="a" gear="2"/></actuator>',
    ),
    "weld to mocap": _mjcf(
        '<body name="hand" mocap="true" pos="0 0 1"/>' + _DRONE,
        '<equality><weld body1="drone" body2="hand" torquescale=".8"/></equality>',
    ),
    "coupled joints": _mjcf(
        _TWO,
        '<equality><joint joint1="a" joint2="b" polycoef="0 .5 .1 0 0"/></equality>' + _MOTORS,
    ),
    "coupled tendons": _mjcf(
        _TWO + '<site name="w" pos=".3 .3 1.6"/>',
        '<tendon><spatial name="s"><site site="a"/><site site="w"/></spatial>'
        '<spatial name="t"><site site="b"/><site site="w"/></spatial></tendon>'
        '<equality><tendon tendon1="s" tendon2="t" polycoef="0 .5 0 0 0"/></equality>',
    ),
    "bare tendon": _mjcf(
        _CHAIN + '<site name="w" pos=".3 .3 1.6"/>',
        '<tendon><spatial name="t"><site site="b"/><site site="w"/></spatial></tendon>'
        '<actuator><motor tendon="t" ctrllimited="false"/></actuator>',
    ),
    "rich tendon": _mjcf(
        f'<geom name="pulley" type="sphere" size=".1" pos=".5 0 1.3" {_PASSING}/>'
        + _CHAIN
        + '<site name="w" pos=".9 .05 1.5"/>',
        '<tendon><spatial name="t" stiffness="9" damping=".5" frictionloss=".1" '
        'limited="true" range="0 .68" margin=".01" springlength=".1 .3"><site site="a"/>'
        '<geom geom="pulley"/><site site="w"/></spatial></tendon>'
        '<actuator><position tendon="t" kp="30"/></actuator>',
    ),
    "fixed tendon": _mjcf(
        _link("a", "0 0 1", "", _link("b", ".4 0 0")),
        '<tendon><fixed name="t" stiffness="2" damping=".1" frictionloss=".1" limited="true" '
        'range="-.02 .02"><joint joint="a" coef="1"/><joint joint="b" coef="-.5"/></fixed></tendon>'
        + _MOTORS,
    ),
    "tendon of two trees": _mjcf(
        _POLE + _ball("free", "1 0 .6", f'type="box" size=".1 .08 .05" {_PASSING}').replace(
            "</body>", '<site name="w" pos=".05 0 0"/></body>'
        ),
        '<tendon><spatial name="t" stiffness="30" damping="5" springlength=".2"><site site="a"/>'
        '<site site="w"/></spatial></tendon>',
        'integrator="implicitfast"',
    ),
    "muscle": _mjcf(
        _POLE + '<site name="w" pos=".2 0 1.4"/>',
        '<tendon><spatial name="t"><site site="a"/><site site="w"/></spatial></tendon>'
        '<actuator><muscle tendon="t" force="20" lengthrange=".1 .9"/></actuator>',
    ),
    "strong friction": _mjcf(
        _link("a", "0 0 1", 'frictionloss="3" actuatorfrcrange="-1 .3"', _STUCK),
        '<tendon><fixed name="t" frictionloss="2" actuatorfrclimited="true" '
        'actuatorfrcrange="-1 .2"><joint joint="a" coef="1"/><joint joint="b" coef="-.5"/></fixed>'
        '</tendon><actuator><motor joint="a" gear="2"/><motor tendon="t"/></actuator>',
    ),
    "springs that yield": _mjcf(
        _link("a", "0 0 1", 'stiffness="9" springyield=".05"', _link("b", ".4 0 0")),
        '<tendon><fixed name="t" stiffness="9" springyield=".02"><joint joint="a" coef="1"/>'
        '<joint joint="b" coef="-.5"/></fixed></tendon>',
    ),
    "delays": _mjcf(
        _CHAIN, '<actuator><motor joint="a" delay=".02" nsample="8" gear="9"/></actuator>'
    ),
    "dc motor": _mjcf(
        _CHAIN,
        '<actuator><dcmotor joint="a" motorconst=".1" resistance="2" inductance=".02 0" '
        'thermal="2 8 0 .004 25 25" lugre="16 .1 .06 .1 .2" cogging=".06 6 0" gear="9"/>'
        "</actuator>",
    ),
    "servo with an integral": _mjcf(
        _CHAIN, '<actuator><pid joint="a" kp="4" kv=".1" ki="5" imax=".5" slewmax="8"/></actuator>'
    ),
    "crank": _mjcf(
        _link("a", "0 0 1") + '<site name="slider" pos=".2 0 .6" zaxis="1 0 0"/>',
        '<actuator><general cranksite="a" slidersite="slider" cranklength=".5" gear="9"/>'
        "</actuator>",
    ),
    "elliptic pairs": _mjcf(
        f'<geom name="floor" type="plane" size="3 3 .1" {_PASSING}/>'
        + _ball("sphere", "0 0 .095", f'type="sphere" size=".1" {_PASSING}'),
        '<contact><pair geom1="floor" geom2="sphere" condim="4" friction=".2 .2 .01 .001 .001" '
        'solreffriction=".03 1"/></contact>',
        'cone="elliptic"',
    ),
    "contacts overridden": _mjcf(
        _FLOOR + _SPHERE,
        '<option o_friction=".3 .3 .01 .001 .001" o_solref=".03 1"><flag override="enable"/>'
        "</option>",
    ),
    "adhesion": _mjcf(_FLOOR + _SPHERE, '<actuator><adhesion body="sphere" gain="9" '
        'ctrlrange="0 1"/></actuator>'),
    "sticky belt": _mjcf(
        '<geom type="plane" size="3 3 .1" surfacevel=".1 0 0" adhesion="2"/>' + _SPHERE
    ),
    "fluid": _mjcf(
        _link("a", "0 0 1", 'damping=".05"', _link("b", ".4 0 0")) + _DRONE,
        _MOTORS,
        'density="100" viscosity=".5" wind="1 0 .5"',
    ),
}  # fmt: skip

if mujoco.mj_version() < 4_000_000:  # which has no such springs
    del MODELS["springs that yield"]
