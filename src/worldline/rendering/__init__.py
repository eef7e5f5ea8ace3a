"""Everything that draws: what worlds look like to a policy, in a video and in a viewer.

`scene` holds one world at a time; `opengl`, `warp` and `raycast` are renderers of it, and `base` is
what they have in common. `pool` chooses one and runs it on several threads. `camera` configures
what a policy sees, and `frames` draws pictures for people.
"""
