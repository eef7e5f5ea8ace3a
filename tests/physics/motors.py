"""Small models with MuJoCo 4's motors, controllers and delays; numbers that float32 holds."""

#: A pendulum under each of these. The time step is 1/512 s.
ACTUATORS = {
    "dcmotor": '<dcmotor name="m" joint="j" motorconst="0.125" resistance="2" ctrlrange="-12 12"/>',
    "dcmotor by its curve": '<dcmotor name="m" joint="j" nominal="12 0.75 96"/>',
    "dcmotor with states": '<dcmotor name="m" joint="j" motorconst="0.125" resistance="2" '
    'inductance="0.015625 0" thermal="2 8 0 0.00390625 25 25" lugre="16 .125 .0625 .125 .25" '
    'cogging=".0625 6 0" saturation="1 0 0"/>',
    "dcmotor with a controller": '<dcmotor name="m" joint="j" motorconst="0.125" resistance="2" '
    'input="pos vel" controller="4 1 .125 16 1 24"/>',
    "pid": '<pid name="m" joint="j" kp="4" kv=".125" ki="1" imax=".5" slewmax="8"/>'
    '<motor name="n" joint="j" ctrlrange="-1 1"/>',
    "pid without states": '<pid name="m" joint="j" kp="4" kv=".125"/>',
    "delay": '<motor name="m" joint="j" delay="0.01171875" nsample="16"/>',
    "delay of a filter": '<general name="m" joint="j" dyntype="filter" dynprm="0.0625" '
    'delay="0.0048828125" nsample="16" interp="linear"/>',
}
#: Sensors with a memory, which every model has.
SENSORS = """
<jointpos name="late" joint="j" delay="0.0078125" nsample="16"/>
<jointvel name="slow" joint="j" interval="0.015625 0" nsample="4"/>
<jointpos name="now" joint="j"/>"""
TIMESTEP = 1 / 512


def mjcf(actuators: str, sensors: str = SENSORS, option: str = "") -> str:
    """The pendulum under actuators of one's own."""
    return f"""
<mujoco>
  <option timestep="{TIMESTEP}" {option}/>
  <worldbody>
    <body name="rod">
      <joint name="j" axis="0 1 0" damping="0.015625"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.02" mass="0.25"/>
    </body>
  </worldbody>
  <actuator>{actuators}</actuator>
  <sensor>{sensors}</sensor>
</mujoco>"""
