"""Gateways on other machines than the head, as real processes over tcp of this machine."""
