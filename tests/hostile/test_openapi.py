"""The OpenAPI document against the server: requests made from its schemas, and others that break them."""

from __future__ import annotations

from collections.abc import Iterator
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


def operations(schema: Any) -> Iterator[tuple[str, Any]]:
    for result in schema.get_all_operations():
        operation = result.ok()
        yield f"{operation.method.upper()} {operation.path}", operation


def test_no_request_that_the_document_suggests_breaks_the_server(schema: Any, client: httpx.Client) -> None:
    from schemathesis import GenerationMode

    tried = 0
    for label, operation in operations(schema):
        cases = st.one_of(
            operation.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        )

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def fuzz(case: Any, label: str = label) -> None:
            nonlocal tried
            tried += 1
            response = case.call(base_url=str(client.base_url), timeout=120)
            assert response.status_code < 500, (label, response.status_code, response.text[:200])
            if response.status_code >= 400:
                assert not UNSAFE.search(response.text), (label, response.text[:200])

        fuzz()
    assert tried > EXAMPLES
