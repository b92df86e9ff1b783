"""A federation over Flower: SuperLink and SuperNodes carry the bytes over TLS, the rounds are ours."""

RECORD = "foveola"
"""The record of a Flower message that holds ours."""
