"""The OpenAPI document against the server: requests made from its schemas, and others that break them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.hostile.asking import UNSAFE

pytestmark = [pytest.mark.process, pytest.mark.slow]
EXAMPLES = 12


@pytest.fixture(scope="module")
def schema(client: httpx.Client) -> Any:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed (extra dev)")
    return schemathesis.openapi.from_dict(client.get("/openapi.json").json())


def sent(label: str, cases: Any, address: str) -> int:
    """Send some requests that ``cases`` makes; none breaks the server, and no refusal gives anything away."""
    statuses: list[int] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def fuzz(case: Any) -> None:
        response = case.call(base_url=address, timeout=120)
        statuses.append(response.status_code)
        assert response.status_code < 500, (label, response.status_code, response.text[:200])
        if response.status_code >= 400:
            assert not UNSAFE.search(response.text), (label, response.text[:200])

    fuzz()
    return len(statuses)


def test_no_request_that_the_document_suggests_breaks_the_server(schema: Any, client: httpx.Client) -> None:
    from schemathesis import GenerationMode

    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])
        tried += sent(f"{operation.method.upper()} {operation.path}", cases, str(client.base_url))
    assert tried > 5 * EXAMPLES
