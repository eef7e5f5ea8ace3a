"""A run that stopped and goes on is, bit for bit, the run that did not stop."""

import json

import numpy as np
import pytest

import worldline
from worldline.learn.ppo import PPOConfig
from worldline.train import TrainConfig, resume, train

SMALL = PPOConfig(num_worlds=64, unroll_length=8, minibatches=4, epochs=2)


def config(out, steps, domain="light"):
    return TrainConfig(
        steps=steps, out=out, domain=domain, evaluations=1, eval_episodes=2, video=False, quiet=True
    )


def arrays(file):
    with np.load(file, allow_pickle=False) as content:
        return {name: content[name].tobytes() for name in content.files if name != "about"}


def learned(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("speed/", "seconds")
    return [
        {name: value for name, value in row.items() if not name.startswith(timed)} for row in rows
    ]


@pytest.mark.parametrize(
    "task",
    [
        "gym/hopper",
        *(
            pytest.param(t, marks=pytest.mark.exhaustive)
            for t in ("gym/ant", "suite/quadruped-walk")
        ),
    ],
)
def test_a_run_in_two_parts_is_a_run(task, tmp_path):
    env = worldline.make(task)
    whole = train(task, env, config(tmp_path / "whole", 2048), SMALL).folder
    part = train(task, env, config(tmp_path / "part", 1024), SMALL).folder
    resume(part, steps=2048, quiet=True)
    # The last checkpoint holds networks, optimiser, worlds and random numbers.
    last = [max(folder.glob("checkpoints/step-*.npz")) for folder in (whole, part)]
    assert last[0].name == last[1].name
    assert arrays(last[0]) == arrays(last[1])
    measured = learned(whole), learned(part)
    kept = [n for n in measured[0][-1] if not n.startswith("eval/")]  # evaluated at other steps
    assert len(kept) > 10
    for ours, theirs in zip(*measured, strict=True):
        assert {n: ours.get(n) for n in kept} == {n: theirs.get(n) for n in kept}
