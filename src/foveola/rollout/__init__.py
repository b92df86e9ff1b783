"""Which release runs where: custom resources and their operator, parts of GPUs, Envoy. Sees artefacts only."""
