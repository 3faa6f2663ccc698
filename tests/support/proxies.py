"""Real proxies, run as `docs/proxies.md` says, and a client that speaks TLS with them.

They come from the distribution, or from packages that `tests.support.debian_packages` has unpacked in `build/debian`.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Final, Self

from tests.support.clients.http_client import RawHttpClient
from tests.support.ports import free_port
from tests.support.waiting import wait_for

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "proxies.md"
UNPACKED: Final = ROOT / "build" / "debian"
NAME: Final = "llm.example.org"
DOCUMENTED_BACKEND: Final = "127.0.0.1:13305"
PATH: Final = os.pathsep.join(
    [os.environ.get("PATH", ""), "/usr/sbin", *(str(UNPACKED / each) for each in ("usr/sbin", "usr/bin"))]
)


def program(name: str) -> str:
    """Return the path of a program, empty if there is none."""
    return shutil.which(name, path=PATH) or ""


def documented(language: str) -> str:
    """Return the block of the page in this language; there must be one."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)


def make_certificate(folder: Path, name: str = NAME) -> tuple[Path, Path]:
    """Make a certificate of a host; return it and its key."""
    certificate, key, config = folder / "cert.pem", folder / "key.pem", folder / "openssl.cnf"
    config.write_text(f"[req]\nprompt=no\ndistinguished_name=d\nx509_extensions=x\n[d]\nCN={name}\n[x]\n")
    with config.open("a") as more:
        more.write(f"subjectAltName=DNS:{name}\n")
    new = [program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-config", config, "-days", "2", "-keyout", key, "-out", certificate]
    subprocess.run([*new, *files], check=True, capture_output=True)
    return certificate, key


class Proxy:
    """A running proxy. Leaving it as a context manager ends it."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder = folder
        self._command = command
        self._log = folder / "output"
        self.port = 0

    def __enter__(self) -> Self:
        environment = {**os.environ, "HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            wait_for(self._listens, "the proxy listens")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Nginx(Proxy):
    """nginx with the contents of its ``http`` block, in which ``{port}`` is where it listens."""

    def __init__(self, folder: Path, config: str) -> None:
        port = free_port()
        names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        folders = "".join(f"    {name}_temp_path {folder / name};\n" for name in names)
        head = f"daemon off;\nmaster_process off;\npid {folder / 'pid'};\nevents {{}}\nhttp {{\n{folders}"
        head += f"    access_log {folder / 'access.log'};\n"
        (folder / "nginx.conf").write_text(head + config.replace("{port}", str(port)) + "}\n")
        error_log = str(folder / "error.log")
        super().__init__(
            folder, [program("nginx"), "-p", str(folder), "-e", error_log, "-c", str(folder / "nginx.conf")]
        )
        self.port = port


def documented_nginx(folder: Path, backend: int) -> Nginx:
    """Return nginx with the page's configuration, in front of ``backend``, a port."""
    certificate, key = make_certificate(folder)
    config = documented("nginx")
    for written, used in (
        (DOCUMENTED_BACKEND, f"127.0.0.1:{backend}"),
        ("listen 443 ssl;", "listen 127.0.0.1:{port} ssl;"),
        (f"/etc/ssl/certs/{NAME}.pem", str(certificate)),
        (f"/etc/ssl/private/{NAME}.key", str(key)),
    ):
        assert written in config, written
        config = config.replace(written, used)
    return Nginx(folder, config)


def documented_caddy(folder: Path, backend: int) -> Proxy:
    """Return Caddy with the page's configuration, in front of ``backend``, a port."""
    certificate, key = make_certificate(folder)
    port = free_port()
    config = documented("caddyfile")
    site = f"https://{NAME}:{port} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}\n"
    for written, used in ((DOCUMENTED_BACKEND, f"127.0.0.1:{backend}"), (f"{NAME} {{\n", site)):
        assert written in config, written
        config = config.replace(written, used)
    file = folder / "Caddyfile"
    file.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + config)
    proxy = Proxy(folder, [program("caddy"), "run", "--config", str(file), "--adapter", "caddyfile"])
    proxy.port = port
    return proxy


class TlsClient(RawHttpClient):
    """Requests over TLS to a proxy, from an address of the test's choice."""

    def __init__(self, proxy: Proxy, address: str = "127.0.0.1", headers: dict[str, str] | None = None) -> None:
        super().__init__(proxy.port, {"Host": NAME, **(headers or {})})
        self._address = address
        self._tls = ssl.create_default_context(cafile=str(proxy.folder / "cert.pem"))

    def connect(self, receive_buffer: int = 0) -> socket.socket:
        """Return a fresh connection."""
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(30)
        plain.bind((self._address, 0))
        plain.connect(("127.0.0.1", self.port))
        connection = self._tls.wrap_socket(plain, server_hostname=NAME)
        self._connections.append(connection)
        return connection
