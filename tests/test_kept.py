"""What users rely on is still there: public names, commands and their options, tasks and theirs."""

import json
from pathlib import Path

import kept

PROMISED = json.loads((Path(__file__).parent / "kept.json").read_text())


def test_nothing_that_users_rely_on_is_gone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    now = kept.kept()
    assert set(PROMISED["names"]) <= set(now["names"])
    assert set(PROMISED["tasks"]) <= set(now["tasks"])
    for kind in ("options", "task_options"):
        for name, options in PROMISED[kind].items():
            gone = set(options) - set(now[kind][name])
            assert not gone, f"{name} has lost {sorted(gone)}"
