import pytest

# Not test modules themselves, so pytest would not explain their assertions.
pytest.register_assert_rewrite("tests.crash.runtime.arena")
