"""Each constant that MuJoCo's dynamics feel varies as though compiled anew, or is refused."""

import every_field
import field_models
import numpy as np
import pytest

#: In each CI; the others in its rotating part. MJX takes a minute and more for a model.
OFTEN = {
    ("warp", "contacts"),
    ("warp", "slides"),
    *(("native", name) for name in field_models.MODELS),
}
CASES = [
    pytest.param(engine, name, marks=[] if (engine, name) in OFTEN else pytest.mark.exhaustive)
    for engine in ("native", "mjx", "warp")
    for name in field_models.MODELS
]  # fmt: skip


@pytest.mark.parametrize(("engine", "name"), CASES)
def test_a_field_varies_as_in_mujoco_or_is_refused(engine: str, name: str) -> None:
    cells = every_field.cells(name)
    assert len(cells) > 10
    refused = {field: every_field.refusal(engine, name, field) for field in cells}
    assert engine != "native" or not any(refused.values())
    accepted = [field for field, why in refused.items() if not why]
    wrong = {}
    for fields in every_field.programs(engine, accepted):
        for field, end in every_field.simulated(engine, name, fields):
            cell = cells[field]
            if engine == "native":
                right = np.array_equal(end, cell.truth.astype(np.float32))
            else:
                size = max(1.0, np.abs(cell.truth).max())
                error = np.abs(end - cell.truth).max()
                right = error <= max(2e-4 * size, 0.02 * cell.effect) and error < cell.effect / 2
            if not right:
                wrong[field] = (np.abs(end - cell.truth).max(), cell.effect)
    assert not wrong, {field: f"off by {e:.1e}, effect {f:.1e}" for field, (e, f) in wrong.items()}


def test_the_models_feel_all_that_mujoco_has() -> None:
    """A new field of MuJoCo's must be felt by a model, or be named here."""
    felt = {field for name in field_models.MODELS for field in every_field.cells(name)}
    rest = set(every_field.real_fields()) - felt
    rest = {
        x
        for x in rest
        if not x.startswith(every_field.ELSEWHERE) and not x.endswith(("rgba", "user"))
    }
    assert not rest - set(every_field.NOT_FELT)
    assert len(felt) > 80


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_page_tells_what_varies() -> None:
    text = every_field.PAGE.read_text()
    assert every_field.page() in text, "run python tests/physics/every_field.py"
