"""VLM-Bench: a bundle measured on this machine beside its rivals, and the evidence behind every claim."""
