"""A single fetch from a real server on loopback, whose network the test allows, with the test's own resolver."""

from __future__ import annotations

import ipaddress
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gateway.fetching.image_fetch import FetchError, ImageFetcher, host_of
from tests.support.fakes.image_server import PNG, ImageServer

LOOPBACK = [ipaddress.ip_network("127.0.0.1/32")]
LIMIT = 100_000


class Resolver:
    """Host → its addresses at each further lookup."""

    def __init__(self, **names: list[list[str]]) -> None:
        self.names = names
        self.asked: list[str] = []

    def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        if host.replace(".", "").isdigit() or ":" in host:
            return [host]
        turns = self.names.get(host.partition(".")[0])
        if not turns:
            raise OSError("unknown name")
        return turns.pop(0) if len(turns) > 1 else turns[0]


@pytest.fixture
def images() -> Iterator[ImageServer]:
    with ImageServer() as server:
        yield server


def fetch(url: str, resolve: Resolver | None = None, limit: int = LIMIT) -> bytes:
    return ImageFetcher(LOOPBACK, resolve or Resolver()).fetch(url, limit, lambda _: None).data


def test_an_image_is_fetched_without_anything_of_the_environment(
    images: ImageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    found = ImageFetcher(LOOPBACK, Resolver()).fetch(images.url("/ok?a=1"), LIMIT, lambda _: None)
    assert (found.media_type, found.data) == ("image/png", PNG)
    (sent,) = images.headers
    assert set(sent) == {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/status/404", "answered with status 404"),
        ("/status/204", "answered with status 204"),
        ("/type/text%2Fhtml", "answered with text/html"),
        ("/type/application%2Foctet-stream", "is not an image"),
        ("/page", "not a PNG, JPEG, GIF, WebP or BMP image"),
        ("/packed", "compressed content"),
        ("/large/200000", "larger than 100000 bytes"),
        ("/chunked/200000", "larger than 100000 bytes"),
        ("/short", "broke off"),
        ("/to/%2Fto%2F%252Fto%252F%25252Fto%25252F%2525252Fok", "redirects more than 3 times"),
        ("/to/ftp%3A%2F%2F127.0.0.1%2F", "not an http or https URL"),
        ("/to/file%3A%2F%2F%2Fetc%2Fpasswd", "not an http or https URL"),
        ("/to/http%3A%2F%2F169.254.169.254%2Flatest", "no public address"),
        ("/to/http%3A%2F%2F127.0.0.2%2Fok", "no public address"),
    ],
)
def test_responses_that_are_not_images_or_lead_elsewhere_are_refused(
    images: ImageServer, path: str, reason: str
) -> None:
    with pytest.raises(FetchError, match=reason):
        fetch(images.url(path))


@pytest.mark.parametrize("what", ["interim", "trailers", "extensions"])
def test_an_endless_response_that_is_not_an_image_is_abandoned(images: ImageServer, what: str) -> None:
    """Such a server never makes the reader wait, so without a limit of its own the reader would never return."""
    with pytest.raises(FetchError):
        fetch(images.url(f"/flood/{what}"))


def test_an_image_may_come_in_the_smallest_chunks(images: ImageServer) -> None:
    assert fetch(images.url("/tiny_chunks")) == PNG


def test_redirects_are_followed_to_allowed_addresses(images: ImageServer) -> None:
    assert fetch(images.url("/to/%2Fok")) == PNG
    assert [path for path, _ in images.asked] == ["/to/%2Fok", "/ok"]


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a.example/x.png", "file:///etc/passwd", "", "x.png", "//a.example/x", "http://", "http:///x"),
        *("http://a.example:0/", "http://a.example:99999/", "http://[::1", "https://user:pw@a.example/x.png"),
        "http://a.example/" + "a" * 9000,
    ],
)
def test_a_url_without_a_host_is_refused_before_it_is_resolved(url: str) -> None:
    resolve = Resolver(a=[["127.0.0.1"]])
    with pytest.raises(FetchError):
        fetch(url, resolve)
    assert not resolve.asked


def test_the_connection_goes_to_the_address_that_was_checked(images: ImageServer) -> None:
    """DNS rebinding: a second lookup would find another address."""
    resolve = Resolver(rebound=[["127.0.0.1"], ["127.0.0.2"]])
    assert fetch(images.url("/ok", "rebound.test"), resolve) == PNG
    assert resolve.asked == ["rebound.test"]
    assert images.asked == [("/ok", f"rebound.test:{images.port}")]


def test_each_redirect_is_resolved_and_checked_anew(images: ImageServer) -> None:
    resolve = Resolver(rebound=[["127.0.0.1"], ["10.0.0.1"]])
    with pytest.raises(FetchError, match="no public address"):
        fetch(images.url("/to/%2Fok", "rebound.test"), resolve)
    assert len(images.asked) == 1


def test_only_the_allowed_ones_of_several_addresses_are_contacted(images: ImageServer) -> None:
    resolve = Resolver(mixed=[["10.0.0.1", "::1", "127.0.0.1"]])
    assert fetch(images.url("/ok", "mixed.test"), resolve) == PNG


def test_an_unknown_name_and_a_private_one_are_refused_in_the_same_words() -> None:
    reasons = set()
    for host in ("unknown.test", "inside.test"):
        with pytest.raises(FetchError) as refused:
            fetch(f"http://{host}/", Resolver(inside=[["10.0.0.1"]]))
        reasons.add(str(refused.value))
    assert len(reasons) == 1


def test_pieces_are_counted_as_they_arrive(images: ImageServer) -> None:
    counted: list[int] = []
    found = ImageFetcher(LOOPBACK, Resolver()).fetch(images.url("/large/90000"), LIMIT, counted.append)
    assert sum(counted) == len(found.data)
    assert len(counted) > 1


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate (apt-get install openssl)")
def test_the_certificate_must_be_of_the_host_in_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=images.test", "-addext", "subjectAltName=DNS:images.test", "-days", "2"]
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*new, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    names = {"images": [["127.0.0.1"]], "other": [["127.0.0.1"]]}
    with ImageServer(context) as images:
        with pytest.raises(FetchError, match="certificate"):
            fetch(images.url("/ok", "images.test"), Resolver(**names))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert fetch(images.url("/ok", "images.test"), Resolver(**names)) == PNG
        with pytest.raises(FetchError, match="certificate"):
            fetch(images.url("/ok", "other.test"), Resolver(**names))


@pytest.mark.parametrize(
    ("url", "host"),
    [("https://a.example:1/x?key=secret", "a.example"), ("http://[::1]/x", "[::1]"), ("nonsense", "nonsense")],
)
def test_messages_name_the_host_alone(url: str, host: str) -> None:
    assert host_of(url) in (host, "this URL")
