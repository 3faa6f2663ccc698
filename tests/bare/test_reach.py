"""What a bare machine gets from this one: the way to a package index, and the packages that the README names."""

from __future__ import annotations

from pathlib import Path

from tests.bare.__main__ import packages_of
from tests.bare.pipconfig import reach

README = Path(__file__).resolve().parents[2] / "README.md"
LISTED = """\
:env:.cert='/etc/ssl/here.pem'
:env:.find-links='/srv/wheels'
global.extra-index-url='file:///srv/index/simple file:///srv/gone/simple'
global.find-links='/srv/other'
global.index-url='https://example.org/simple'
global.target='/opt/elsewhere'
install.user='true'
list.format='json'
"""


def test_pips_configuration_goes_along() -> None:
    variables = {"HTTPS_PROXY": "http://proxy.example:3128", "SSL_CERT_FILE": "/etc/ssl/here.pem", "HOME": "/root"}
    environment, paths = reach(LISTED, variables, lambda path: not path.startswith("/srv/gone"))
    assert environment == {
        "PIP_CERT": "/etc/ssl/here.pem",
        "PIP_FIND_LINKS": "/srv/wheels",
        "PIP_EXTRA_INDEX_URL": "file:///srv/index/simple file:///srv/gone/simple",
        "PIP_INDEX_URL": "https://example.org/simple",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "SSL_CERT_FILE": "/etc/ssl/here.pem",
    }
    assert paths == ["/etc/hosts", "/etc/resolv.conf", "/etc/ssl/here.pem", "/srv/index", "/srv/wheels"]


def test_only_what_the_readme_names_is_installed() -> None:
    assert packages_of("Text.\n\n    sudo apt-get install one two-3\n\nThen\n") == ["one", "two-3"]
    assert "libgomp1" in packages_of(README.read_text())
