"""The renderers that run here, each in turn."""

import pytest
import viewers


@pytest.fixture(params=viewers.RENDERERS)
def cameras(request):
    return viewers.cameras_of(request.param)
