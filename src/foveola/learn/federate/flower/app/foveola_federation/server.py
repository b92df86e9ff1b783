"""The ServerApp."""

from foveola.learn.federate.flower.server_app import app

__all__ = ["app"]
