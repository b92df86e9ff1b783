"""The ClientApp."""

from foveola.learn.federate.flower.client_app import app

__all__ = ["app"]
