"""Lists the packages of the four top-level packages under the names they are installed by; setup.cfg says the rest."""

from setuptools import find_packages, setup

PACKAGES = ("protocol", "supervisor", "workers", "gateway")

setup(
    packages=["lemonbus"]
    + [f"lemonbus.packages.{package}" for top in PACKAGES for package in find_packages(include=[top, f"{top}.*"])]
)
