"""Lists the packages of the four rooms under the names they are installed by; setup.cfg says the rest."""

from setuptools import find_packages, setup

ROOMS = ("protocol", "supervisor", "workers", "gateway")

setup(
    packages=["lemonbus"]
    + [f"lemonbus.house.{package}" for room in ROOMS for package in find_packages(include=[room, f"{room}.*"])]
)
