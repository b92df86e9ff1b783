"""Keys, roles and rates in front of the application; and what HTTP refuses is seen in the metrics."""

from __future__ import annotations

import hashlib
import re

import httpx
import pytest

from foveola.serve.keys import Key, KeyRing
from foveola.serve.options import ServeOptions
from tests.serve.fake import laid

ASK = "/v1/vlm/invoke"
KEYS = {"ask": "fov-ask", "admin": "fov-admin", "slow": "fov-slow"}
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
ADMIN_PATHS = ("/v1/admin", "/v1/admin/", "/v1/admin/patch", "/v1/admin/rollback", "/v1/admin/versions", "/v1/admin/no")


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


RING = KeyRing(
    (
        Key("line", digest(KEYS["ask"]), priority=7),
        Key("boss", digest(KEYS["admin"]), frozenset({"admin"})),
        Key("slow", digest(KEYS["slow"]), requests_per_minute=1),
    )
)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


@pytest.mark.parametrize("path", ADMIN_PATHS)
async def test_every_admin_path_and_verb_needs_an_admins_key(path: str) -> None:
    for ring in (RING, None):
        async with laid(ring=ring) as table:
            for verb in VERBS:
                for headers, status in (({}, 401), ({"authorization": "Bearer wrong"}, 401), (bearer("ask"), 403)):
                    response = await table.client.request(verb, path, headers=headers)
                    assert response.status_code == (status if ring else 401), (verb, path, headers)
            if ring:
                allowed = await table.client.request("BREW", path, headers=bearer("admin"))
                assert allowed.status_code in (404, 405)


async def test_a_key_opens_asking() -> None:
    async with laid(ring=RING) as table:
        for headers in (bearer("ask"), {"x-api-key": KEYS["ask"]}, {"authorization": f"bearer  {KEYS['ask']}"}):
            assert (await table.ask("a", headers=headers)).status_code == 200
        assert {request.client for request in table.answer.asked} == {"line"}
        assert {request.priority for request in table.answer.asked} == {7}
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": KEYS["ask"]},
            {"authorization": "Basic " + KEYS["ask"]},
            {"x-api-key": ""},
            {**bearer("ask"), "x-api-key": KEYS["ask"]},
        ):
            refused = await table.ask("a", headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert "Authorization: Bearer KEY" in refused.json()["error"]["message"]
        assert (await table.ask("a", headers=bearer("admin"))).status_code == 403
        assert len(table.answer.asked) == 3


async def test_what_an_operator_reads_is_open() -> None:
    async with laid(ring=RING) as table:
        for path in ("/health/live", "/health/ready", "/version", "/metrics", "/docs", "/openapi.json"):
            assert (await table.client.get(path)).status_code == 200
        for path in ("/v1/models", "/nothing", "/v1", "/"):
            assert (await table.client.get(path)).status_code == 401


async def test_openais_paths_refuse_in_openais_form() -> None:
    async with laid(ring=RING) as table:
        response = await table.client.post("/v1/chat/completions", json={})
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"


async def test_a_key_has_its_rate() -> None:
    async with laid(ring=RING) as table:
        replies = [await table.ask("a", headers=bearer("slow")) for _ in range(2)]
        other = await table.ask("a", headers=bearer("ask"))
    assert [reply.status_code for reply in replies] == [200, 429]
    assert replies[1].json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(replies[1].headers["retry-after"]) <= 60
    assert other.status_code == 200


async def test_an_address_without_a_key_has_its_rate() -> None:
    async with laid(options=ServeOptions(requests_per_minute=1)) as table:
        replies = [await table.ask("a") for _ in range(2)]
        assert (await table.client.get("/health/ready")).status_code == 200
    assert [reply.status_code for reply in replies] == [200, 429]
    assert int(replies[1].headers["retry-after"]) >= 1


async def test_the_key_is_in_the_log_by_its_name_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "foveola.serve"):
        async with laid(ring=RING) as table:
            await table.ask("a", headers=bearer("ask"))
    [record] = [record for record in caplog.records if record.msg == "request"]
    assert record.fields["key"] == "line"  # type: ignore[attr-defined]
    assert KEYS["ask"] not in str(record.__dict__)


def counted(metrics: str, name: str, **labels: str) -> float:
    for line in metrics.splitlines():
        if line.startswith(f"{name}{{") and all(f'{label}="{value}"' in line for label, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


async def test_what_http_refuses_is_in_the_metrics() -> None:
    async with laid(options=ServeOptions(region="hall-2", requests_per_minute=12 * 60)) as table:
        json_headers = {"content-type": "application/json"}
        await table.client.post(ASK, content=b"{", headers=json_headers)  # 400
        await table.client.post(ASK, content=b"x", headers={"content-type": "text/plain"})  # 415
        await table.client.post(ASK, content=b"x", headers={**json_headers, "content-length": "99000000"})  # 413
        await table.client.get(ASK)  # 405
        await table.client.get("/secret/path")  # 404
        await table.ask("a")
        while (await table.ask("a")).status_code != 429:
            pass
        metrics = (await table.client.get("/metrics")).text
    for code in ("bad_request", "unsupported_media_type", "too_large", "rate_limit_exceeded", "method_not_allowed"):
        assert counted(metrics, "foveola_http_refused_total", code=code, route=ASK, region="hall-2") == 1.0, code
    assert counted(metrics, "foveola_http_refused_total", code="not_found", route="none") == 1.0
    assert counted(metrics, "foveola_http_requests_total", route=ASK, status="200", method="POST") >= 1.0
    assert counted(metrics, "foveola_http_requests_total", route=ASK, status="429", method="POST") == 1.0
    assert counted(metrics, "foveola_http_seconds_count", route=ASK) >= 6
    assert "secret" not in metrics
    assert not re.search(r"^(?!#|foveola_|$)", metrics, re.MULTILINE)


async def test_the_metrics_do_not_grow_with_what_strangers_send() -> None:
    async with laid() as table:
        for number in range(20):
            await table.client.request(f"VERB{number}", f"/path/{number}")
        metrics = (await table.client.get("/metrics")).text
    assert metrics.count("foveola_http_requests_total{") == 1
    assert 'method="other"' in metrics


async def test_a_failure_nobody_expected_is_counted() -> None:
    from tests.serve.fake import FakeAnswer

    async with laid(FakeAnswer(error=RuntimeError("secret"))) as table:
        response: httpx.Response = await table.ask("a")
        metrics = (await table.client.get("/metrics")).text
    assert response.status_code == 500
    assert counted(metrics, "foveola_http_refused_total", code="internal_error", route=ASK) == 1.0
