"""What happened, told to operators: one record per request, and Prometheus metrics made from records."""

from foveola.observe.metrics import Metrics
from foveola.observe.records import Record, Watch, afterwards, observed

__all__ = ["Metrics", "Record", "Watch", "afterwards", "observed"]
